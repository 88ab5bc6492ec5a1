//! From `[auth]` and the tenants of a configuration to whoever verifies callers.

use onetake_http::identity::{
    AnonymousSettings, ApiKeySettings, ApiKeys, Gate, JwtSettings, KeyOfTenant, Secret,
    SettingsError, TenantKeys, TrustedHeaderSettings, Words,
};

use crate::config::{
    AuthMode, Config, ConfigErrors, JwtConfig, JwtKeys, KeyConfig, Place, TenantConfig,
};

/// Who verifies callers, and their keys where those can be replaced while it runs.
pub(super) fn gate(config: &Config) -> Result<(Gate, Option<ApiKeys>), ConfigErrors> {
    let wrong = |error: SettingsError| Config::error_at(place(config, &error), error.to_string());
    match &config.auth.mode {
        AuthMode::ApiKey { header } => {
            let mut headers = vec!["authorization".to_owned()];
            headers.extend(header.as_ref().map(|header| header.as_str().to_owned()));
            let settings = ApiKeySettings { headers: headers.into_iter().collect() };
            let keys = settings.build(&tenants(&config.tenants)).map_err(wrong)?;
            Ok((Gate::ApiKeys(keys.clone()), Some(keys)))
        }
        AuthMode::Jwt(jwt) => {
            let gate = jwt_settings(jwt).build().map_err(wrong)?;
            Ok((Gate::Jwt(gate), None))
        }
        AuthMode::TrustedHeader { tenant, principal, from } => {
            let settings = TrustedHeaderSettings {
                networks: from.iter().map(ToString::to_string).collect(),
                tenant_header: tenant.as_str().to_owned(),
                principal_header: Some(principal.as_str().to_owned()),
                ..TrustedHeaderSettings::default()
            };
            Ok((Gate::TrustedHeader(settings.build().map_err(wrong)?), None))
        }
        AuthMode::Anonymous { tenant } => {
            let settings = AnonymousSettings { tenant: Some(tenant.as_str().to_owned()) };
            Ok((Gate::Anonymous(settings.build().map_err(wrong)?), None))
        }
    }
}

/// Where the cause of `error` was given.
fn place<'c>(config: &'c Config, error: &SettingsError) -> &'c Place {
    let SettingsError::Key { tenant, number, .. } = error else { return &config.auth.place };
    let tenant = config.tenants.iter().find(|one| one.name.as_str() == tenant);
    let key = tenant.and_then(|tenant| tenant.keys.get(number.saturating_sub(1)));
    key.map_or(&config.auth.place, |key| &key.place)
}

/// The tenants of a configuration, as those who verify keys want them.
pub(crate) fn tenants(tenants: &[TenantConfig]) -> Vec<TenantKeys> {
    let words = |words: &Option<Vec<crate::config::Word>>| -> Option<Words> {
        words
            .as_ref()
            .map(|words| words.iter().map(|word: &crate::config::Word| word.0.clone()).collect())
    };
    let key = |key: &KeyConfig| KeyOfTenant {
        digest: key.hash.text(),
        name: key.name.as_ref().map(|name| name.as_str().to_owned()),
        scopes: words(&key.scopes),
        expires: key.expires.map(|at| humantime::format_rfc3339_seconds(at).to_string()),
    };
    let tenant = |tenant: &TenantConfig| TenantKeys {
        name: tenant.name.as_str().to_owned(),
        keys: tenant.keys.iter().map(key).collect(),
        scopes: words(&tenant.scopes),
        ..TenantKeys::default()
    };
    tenants.iter().map(tenant).collect()
}

fn jwt_settings(jwt: &JwtConfig) -> JwtSettings {
    let mut settings = JwtSettings {
        issuer: jwt.issuer.iter().cloned().collect(),
        audience: jwt.audience.iter().cloned().collect(),
        algorithms: jwt.algorithms.iter().map(|one| one.name()).collect(),
        leeway: jwt.leeway,
        tenant_claim: Some(jwt.tenant_claim.0.clone()),
        principal_claim: jwt.principal_claim.0.clone(),
        scope_claim: jwt.scopes_claim.0.clone(),
        ..JwtSettings::default()
    };
    match &jwt.keys {
        JwtKeys::File(path) => settings.jwks_file = Some(path.clone()),
        JwtKeys::Url(url) => settings.jwks_url = Some(url.to_string()),
        JwtKeys::Secret(secret) => settings.secret = Some(Secret::new(secret.expose())),
    }
    settings
}
