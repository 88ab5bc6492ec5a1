//! The outcome that an operator gives to an unknown, from what was typed.
//!
//! Reads a body from the command line, a file or standard input, and never shows it again.

use std::fs;
use std::io::{Read, stdin};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ArgGroup;
use onetake::engine::operate::Form;
use onetake_console::wire::{Content, Field, ResolveAsk, Veiled};

use super::Which;
use crate::exit::Fault;

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a word that may be typed")]
#[command(
    group = ArgGroup::new("form").required(true).args(["status", "value", "failure", "not_kept"])
)]
pub(super) struct Resolve {
    #[command(flatten)]
    pub(super) which: Which,
    /// The version that you saw; if it is another by now, nothing happens
    #[arg(long, value_name = "VERSION")]
    seen: String,
    /// It came to a response with this status
    #[arg(long)]
    status: Option<u16>,
    /// A header of the response, as `name: value`; may be given again
    #[arg(long = "header", value_name = "HEADER", requires = "status")]
    headers: Vec<String>,
    /// It came to a value, which the body holds
    #[arg(long)]
    value: bool,
    /// It came to a failure, which the body holds
    #[arg(long)]
    failure: bool,
    /// The value or failure is no JSON, and need not be
    #[arg(long)]
    raw: bool,
    /// It happened, and what it returned is not known
    #[arg(long, conflicts_with_all = ["body", "body_file"])]
    not_kept: bool,
    /// The body, value or failure
    #[arg(long, conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with it; `-` is standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// How long it is kept, such as 24h or 7d
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    keep: String,
}

impl Resolve {
    /// What is asked of the desk.
    ///
    /// # Errors
    /// When a header is none, or the file cannot be read.
    pub(super) fn ask(&self) -> Result<ResolveAsk> {
        let form = match (self.status, self.value, self.failure) {
            (Some(_), ..) => Form::Response,
            (None, true, _) => Form::Value,
            (None, false, true) => Form::Failure,
            (None, false, false) => Form::NotKept,
        };
        let bytes = self.bytes()?;
        if matches!(form, Form::Value | Form::Failure) && !self.raw {
            // A function reads its result as JSON; anything else would answer nobody, for ever.
            let bytes = bytes.as_deref().unwrap_or_default();
            if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err() {
                let what = "a value or failure is JSON, such as '\"receipt 1\"'; \
                            `--raw` takes any bytes, for programs that keep them";
                return Err(Fault::Usage(what.to_owned()).into());
            }
        }
        let (body, body_hex) = match bytes.map(String::from_utf8) {
            Some(Ok(text)) => (Some(Veiled(text)), None),
            Some(Err(bytes)) => (None, Some(Veiled(hex(bytes.as_bytes())))),
            None => (None, None),
        };
        Ok(ResolveAsk {
            seen: self.seen.clone(),
            form,
            status: self.status,
            content: Content { headers: self.headers()?, body, body_hex },
            keep: self.keep.clone(),
        })
    }

    fn headers(&self) -> Result<Vec<Field>> {
        let field = |text: &String| {
            let (name, value) = text
                .split_once(':')
                .ok_or_else(|| Fault::Usage("a header reads `name: value`".to_owned()))?;
            Ok(Field { name: name.trim().to_owned(), value: Veiled(value.trim().to_owned()) })
        };
        self.headers.iter().map(field).collect()
    }

    fn bytes(&self) -> Result<Option<Vec<u8>>> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(Some(text.clone().into_bytes())),
            (None, Some(path)) if path.as_os_str() == "-" => {
                let mut bytes = Vec::new();
                stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
                Ok(Some(bytes))
            }
            (None, Some(path)) => {
                let read = fs::read(path);
                read.map(Some).with_context(|| format!("cannot read {}", path.display()))
            }
            (None, None) => Ok(None),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
