//! The same over TLS: who is believed, and that nobody else hears a word.

use std::sync::Arc;

use http::Method;
use onetake_activity::{HttpCall, HttpFailure, HttpSettingsError, NotSentCause, Roots};
use rcgen::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::rig::{World, answer, settings, whole};

/// A certificate of `localhost`, and a server's side of TLS with it.
fn server() -> (Roots, TlsAcceptor) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Roots::Only(vec![cert.der().clone()]), TlsAcceptor::from(Arc::new(config)))
}

/// W16: over TLS as without it, and to nobody whose certificate leads nowhere.
#[tokio::test]
async fn w16_a_provider_over_tls_is_called_if_it_is_believed() {
    let (roots, acceptor) = server();
    for (roots, is_believed) in [(roots, true), (Roots::Only(Vec::new()), false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = acceptor.clone();
        let provider = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { return String::new() };
            let mut read = Vec::new();
            while whole(&read).is_none() {
                if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                    return String::new();
                }
            }
            stream.write_all(&answer(200, "", "ok")).await.unwrap();
            whole(&read).unwrap()
        });
        let world = World::with(settings().attempts_max(1).roots(roots));
        let url = format!("https://localhost:{port}/v1");
        let call = HttpCall::new(Method::POST, &url).unwrap().body("secret");
        let replied = world.http("openai-chat", call).await;
        if is_believed {
            assert_eq!(replied.unwrap().kept().unwrap().value.status, 200);
            let seen = provider.await.unwrap();
            assert!(seen.contains("idempotency-key: ") && seen.ends_with("secret"), "{seen}");
        } else {
            let failed = crate::rig::failure(replied);
            assert_eq!(failed, HttpFailure::NotSent { why: NotSentCause::Tls, attempts: 1 });
            assert_eq!(provider.await.unwrap(), "");
        }
    }
}

/// X3: whoever does not speak TLS hears no word of a call.
#[tokio::test]
async fn x3_a_provider_that_does_not_speak_tls_is_not_sent_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/secret", listener.local_addr().unwrap());
    let provider = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        stream.read_buf(&mut read).await.unwrap();
        stream.write_all(&answer(200, "", "ok")).await.unwrap();
        let _ = stream.read_to_end(&mut read).await;
        read
    });
    let world = World::with(settings().attempts_max(1).roots(Roots::Only(Vec::new())));
    let call = HttpCall::new(Method::POST, &url).unwrap().body("secret");
    let failed = world.failure("openai-chat", call).await;
    assert_eq!(failed, HttpFailure::NotSent { why: NotSentCause::Tls, attempts: 1 });
    assert!(!provider.await.unwrap().windows(6).any(|part| part == b"secret"));
}

#[test]
fn a_certificate_that_is_none_is_refused() {
    let roots = Roots::Only(vec![CertificateDer::from(b"no certificate".to_vec())]);
    let refused = onetake_activity::HttpClient::new(settings().roots(roots)).unwrap_err();
    assert_eq!(refused, HttpSettingsError::Certificate { at: 0 });
}
