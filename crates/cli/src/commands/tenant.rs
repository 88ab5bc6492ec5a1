//! `onetake tenant`: who may call, in the configuration file.
//!
//! A key is shown once, when it is made; the file holds its digest only. The file keeps its
//! comments and its order, is checked before it is replaced, and is replaced whole or not at all. A
//! running gateway reads it again by itself. One that is not there is made by `add`, and by nothing
//! else.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use onetake_http::identity::generate_key;
use serde::Serialize;
use toml_edit::{Array, ArrayOfTables, Datetime, DocumentMut, InlineTable, Item};
use toml_edit::{Table, Value, value};

use crate::config::{
    Config, ConfigErrors, DEFAULT_FILE, Environment, KeyConfig, Source, TenantConfig, Word, moment,
};
use crate::exit::{Exit, Fault};
use crate::gateway;
use crate::out::{say, table};

/// Digits of a digest that name a key to a person.
const ID_DIGITS: usize = 12;
const SHA256: &str = "sha256:";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE, global = true)]
    config: PathBuf,
    /// Print JSON and nothing else
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Give a tenant a new API key, and show it this once; a tenant that is not there is added,
    /// and so is a file
    Add(Add),
    /// List tenants and their keys
    List,
    /// Take a key from a tenant
    Revoke {
        /// The tenant
        name: String,
        /// The key, as `list` names it
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// All its keys
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The tenant
    name: String,
    /// The subject that the key stands for; keys without one share the tenant's keys
    #[arg(long = "as", value_name = "SUBJECT")]
    subject: Option<String>,
    /// What the key may do, where a route requires it; may be given again; without this, what its
    /// tenant may
    #[arg(long = "scope", value_name = "NAME")]
    scopes: Vec<String>,
    /// When the key stops working: after a span such as 90d, or at a date such as 2030-01-31, in
    /// UTC; without this, never
    #[arg(long, value_name = "SPAN|DATE")]
    expires: Option<String>,
}

/// Does what was asked.
///
/// # Errors
/// When the file cannot be read or written, or would be wrong afterwards.
pub(crate) fn run(args: &Args) -> Result<Exit> {
    match &args.act {
        Act::Add(new) => add(args, new),
        Act::List => list(args),
        Act::Revoke { name, key, .. } => revoke(args, name, key.as_deref()),
    }
}

#[derive(Serialize)]
struct Added<'a> {
    tenant: &'a str,
    id: &'a str,
    key: &'a str,
    scopes: Option<&'a [String]>,
    expires: Option<String>,
    /// The file, and whether it was made just now.
    config: String,
    made: bool,
}

fn add(args: &Args, new: &Add) -> Result<Exit> {
    let Add { name, subject, scopes, expires } = new;
    let expires = expires.as_deref().map(end).transpose()?;
    let is_new = !args.config.exists();
    let mut document = if is_new { DocumentMut::new() } else { read(&args.config)? };
    let (key, digest) = generate_key()?;
    let scopes = Some(scopes.as_slice()).filter(|scopes| !scopes.is_empty());
    let given = match (subject, scopes, &expires) {
        (None, None, None) => Value::from(&digest),
        (subject, scopes, expires) => {
            let mut given = InlineTable::new();
            given.insert("hash", Value::from(&digest));
            given.extend(subject.iter().map(|name| ("name", Value::from(name))));
            let list = |scopes: &[String]| Value::Array(scopes.iter().collect());
            given.extend(scopes.map(|scopes| ("scopes", list(scopes))));
            given.extend(expires.iter().map(|(moment, _)| ("expires", Value::from(*moment))));
            Value::InlineTable(given)
        }
    };
    keys_of(tenant(&mut document, name)?)?.push(given);
    write(&args.config, &document)?;
    let (id, config) = (id_of(&digest), args.config.display().to_string());
    let expires = expires.map(|(_, text)| text);
    let added = Added { tenant: name, id, key: &key, scopes, expires, config, made: is_new };
    let judged = judge(args);
    let is_served = matches!(&judged, Ok((_, Some(plan))) if plan.keys.is_some());
    say(args.json, &added, || {
        let taken = if is_served { "\nA running gateway takes it within seconds." } else { "" };
        format!("{key}\n\nThis is the key {id} of {name}; it is not shown again.{taken}")
    })?;
    if is_new && !args.json {
        eprintln!("made the file {}", args.config.display());
    }
    note(args, judged);
    Ok(Exit::Done)
}

type Judged = Result<(Config, Option<gateway::Plan>), ConfigErrors>;

/// What `onetake serve` would say of the file as it is now.
fn judge(args: &Args) -> Judged {
    gateway::load(Source::File(&args.config), &Environment::of_process())
}

/// Says what still keeps the file from being served. Not an error: who adds a tenant may be in the
/// middle of writing it.
fn note(args: &Args, judged: Judged) {
    if let Err(errors) = judged
        && !args.json
    {
        eprintln!("`onetake serve` would refuse the file as it is now:\n{errors}");
    }
}

/// The end that was typed, as a file has it and as text.
fn end(text: &str) -> Result<(Datetime, String)> {
    let refused = |why: &str| {
        let what = "give a span such as 90d, or a date such as 2030-01-31";
        Fault::Usage(format!("--expires: {why}; {what}"))
    };
    let end = moment(text, SystemTime::now()).ok_or_else(|| refused("this is no end"))?;
    if end <= SystemTime::now() {
        return Err(refused("that is over already").into());
    }
    let text = humantime::format_rfc3339_seconds(end).to_string();
    let written = text.parse().ok().ok_or_else(|| refused("this is too far away"))?;
    Ok((written, text))
}

/// One key, without its secret.
#[derive(Serialize)]
struct Row {
    tenant: String,
    id: String,
    subject: Option<String>,
    /// What it may do; none for everything.
    scopes: Option<Vec<Word>>,
    expires: Option<String>,
}

fn list(args: &Args) -> Result<Exit> {
    let config = Config::load(Source::File(&args.config), &Environment::of_process())?;
    let rows: Vec<Row> = config.tenants.iter().flat_map(rows_of).collect();
    say(args.json, &rows, || {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let cells = rows.iter().map(|row| {
            let (subject, expires) = (or_dash(&row.subject), or_dash(&row.expires));
            [row.tenant.clone(), row.id.clone(), subject, scopes_text(row), expires]
        });
        let head = ["TENANT", "KEY", "SUBJECT", "SCOPES", "EXPIRES"];
        table(head, &cells.collect::<Vec<_>>())
    })?;
    Ok(Exit::Done)
}

fn scopes_text(row: &Row) -> String {
    let Some(scopes) = &row.scopes else { return "all".to_owned() };
    let names: Vec<&str> = scopes.iter().map(|Word(name)| name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn rows_of(tenant: &TenantConfig) -> Vec<Row> {
    let row = |key: &KeyConfig| Row {
        tenant: tenant.name.as_str().to_owned(),
        id: id_of(&key.hash.text()).to_owned(),
        subject: key.name.as_ref().map(|name| name.as_str().to_owned()),
        scopes: key.scopes.as_ref().or(tenant.scopes.as_ref()).cloned(),
        expires: key.expires.map(|at| humantime::format_rfc3339_seconds(at).to_string()),
    };
    tenant.keys.iter().map(row).collect()
}

#[derive(Serialize)]
struct Revoked<'a> {
    tenant: &'a str,
    revoked: usize,
}

/// Takes the key that begins with `id`, or all of them.
fn revoke(args: &Args, name: &str, id: Option<&str>) -> Result<Exit> {
    let mut document = read(&args.config)?;
    if !has_tenant(&document, name) {
        bail!(Fault::Usage(format!("there is no tenant `{name}` in {}", args.config.display())));
    }
    let keys = keys_of(tenant(&mut document, name)?)?;
    let id = id.map(|id| id.trim_start_matches(SHA256).to_ascii_lowercase());
    let is_meant = |key: &Value| {
        let digest = digest_of(key).unwrap_or_default().trim_start_matches(SHA256);
        id.as_ref().is_none_or(|id| digest.to_ascii_lowercase().starts_with(id))
    };
    let meant = keys.iter().filter(|key| is_meant(key)).count();
    if id.is_some() && meant != 1 {
        let what = if meant == 0 { "no key" } else { "more than one key" };
        bail!(Fault::Usage(format!(
            "`{name}` has {what} that begins so; see `onetake tenant list`"
        )));
    }
    keys.retain(|key| !is_meant(key));
    write(&args.config, &document)?;
    say(args.json, &Revoked { tenant: name, revoked: meant }, || {
        format!("revoked: {meant}; a running gateway refuses them within seconds")
    })?;
    note(args, judge(args));
    Ok(Exit::Done)
}

fn read(path: &Path) -> Result<DocumentMut> {
    let text = fs::read_to_string(path).map_err(|why| {
        let is_missing = why.kind() == ErrorKind::NotFound;
        let error = anyhow::Error::new(why).context(format!("cannot read {}", path.display()));
        let missing = || {
            let path = path.display();
            Fault::Usage(format!("there is no file {path}; name one with `--config FILE`"))
        };
        if is_missing { missing().into() } else { error }
    })?;
    // What is wrong is said by the one who knows lines, before anything is changed.
    check(path, &text)?;
    text.parse().with_context(|| format!("{} is not TOML", path.display()))
}

fn check(path: &Path, text: &str) -> Result<()> {
    let name = path.display().to_string();
    Config::load(Source::Text { name: &name, text }, &Environment::of_process())?;
    Ok(())
}

/// Replaces the file, with the permissions that it had; or makes it, with those that files have
/// here. Nobody can use what is in it: digests are no keys.
fn write(path: &Path, document: &DocumentMut) -> Result<()> {
    let text = document.to_string();
    check(path, &text)?;
    let there = path.exists().then(|| fs::canonicalize(path)).transpose()?;
    let path = there.as_deref().unwrap_or(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut draft = tempfile::Builder::new();
    let draft = draft.permissions(Permissions::from_mode(0o666));
    let draft = draft.tempfile_in(folder.unwrap_or(Path::new(".")));
    let mut draft = draft.with_context(|| format!("cannot write {}", path.display()))?;
    draft.write_all(text.as_bytes())?;
    if there.is_some() {
        draft.as_file().set_permissions(fs::metadata(path)?.permissions())?;
        draft.as_file().sync_all()?;
        draft.persist(path)?;
    } else {
        draft.as_file().sync_all()?;
        // Whoever made one meanwhile keeps it.
        draft.persist_noclobber(path)?;
    }
    Ok(())
}

fn tenants(document: &mut DocumentMut) -> Result<&mut ArrayOfTables> {
    let found = document.entry("tenant").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    found.as_array_of_tables_mut().context("write tenants as `[[tenant]]`")
}

fn is_named(table: &Table, name: &str) -> bool {
    table.get("name").and_then(Item::as_str) == Some(name)
}

fn has_tenant(document: &DocumentMut, name: &str) -> bool {
    let tenants = document.get("tenant").and_then(Item::as_array_of_tables);
    tenants.is_some_and(|tenants| tenants.iter().any(|table| is_named(table, name)))
}

/// The table of `name`, made where there is none.
fn tenant<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut Table> {
    let tenants = tenants(document)?;
    if !tenants.iter().any(|table| is_named(table, name)) {
        let mut new = Table::new();
        new.insert("name", value(name));
        tenants.push(new);
    }
    let found = tenants.iter_mut().find(|table| is_named(table, name));
    found.context("it was just made sure of")
}

fn keys_of(tenant: &mut Table) -> Result<&mut Array> {
    let keys = tenant.entry("keys").or_insert(value(Array::new()));
    keys.as_array_mut().context("write `keys` as a list")
}

fn digest_of(key: &Value) -> Option<&str> {
    let inside = key.as_inline_table().and_then(|table| table.get("hash"));
    inside.unwrap_or(key).as_str()
}

/// How a key is named to a person.
fn id_of(digest: &str) -> &str {
    let digits = digest.trim_start_matches(SHA256);
    digits.get(..ID_DIGITS).unwrap_or(digits)
}
