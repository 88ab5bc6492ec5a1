//! The body of a record: everything that its label does not tell.
//!
//! Names go through the same constructors as a caller's, so no record that was read holds what none
//! could have been written with. This file never sees a checksum or a seal; both are behind it.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Algorithm, Cause, Fence, Filters, Fingerprint, Header, Keeping, Key, Method,
    Operation, Outcome, Phase, Pointer, Principal, Record, Scope, Status, Tenant, Timestamp,
};

use super::fields::put_count;
use super::{Body, CodecError, Kind, Label, Reader};

/// Fence, attempt, recovery, state, algorithm, digest, four lengths, two counts, and the outcome's
/// kind, status, number of headers and length.
const FIXED_BYTES: usize = 16 + 4 + 1 + 1 + 1 + 32 + 4 + 2 + 10;
/// The two lengths of a header of a response.
const HEADER_BYTES: usize = 4;
/// Headers for which room is made before they are seen.
const HEADERS_AHEAD_MAX: usize = 64;

const RESPONSE: u8 = 1;
const VALUE: u8 = 2;
const FAILURE: u8 = 3;
const NOT_KEPT: u8 = 4;

/// Bytes that the body of `record` takes, or a few more; fewer only where it has filters.
pub(super) fn room(record: &Record) -> usize {
    let address = &record.address;
    let names = address.tenant().as_str().len()
        + address.principal().map_or(0, |name| name.as_str().len())
        + address.operation().as_str().len()
        + address.key().as_str().len();
    let headers = match &record.phase {
        Phase::Done { outcome, .. } => match &**outcome {
            Outcome::Response { headers, .. } => headers.len(),
            Outcome::Value(_) | Outcome::Failure(_) | Outcome::NotKept { .. } => 0,
        },
        Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. } => 0,
    };
    FIXED_BYTES + names + HEADER_BYTES * headers + record.outcome_weight()
}

pub(super) fn write(out: &mut Vec<u8>, record: &Record) {
    let state = match &record.phase {
        Phase::Claimed { .. } | Phase::Released { .. } => 0,
        Phase::Done { keeping, .. } => keeping_number(*keeping),
        Phase::Unknown { cause } => cause_number(*cause),
    };
    out.extend_from_slice(&{ record.fence.0 }.to_be_bytes());
    out.extend_from_slice(&record.attempt.to_be_bytes());
    out.extend_from_slice(&[u8::from(record.recovery), state]);
    let method = record.fingerprint.method();
    out.push(algorithm_number(method.algorithm()));
    out.extend_from_slice(record.fingerprint.digest());
    let address = &record.address;
    put_name(out, address.tenant().as_str());
    put_name(out, address.principal().map_or("", Principal::as_str));
    put_name(out, address.operation().as_str());
    put_name(out, address.key().as_str());
    put_filters(out, method.filters());
    match &record.phase {
        Phase::Done { outcome, .. } => put_outcome(out, outcome),
        Phase::Claimed { .. } | Phase::Released { .. } | Phase::Unknown { .. } => {}
    }
}

pub(super) fn read(body: &Body<'_>, label: &Label) -> Result<Record, CodecError> {
    let mut reader = Reader::new(body.bytes());
    let fence = Fence(reader.u128()?);
    let attempt = reader.u32()?;
    let recovery = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(CodecError::Malformed("its recovery is neither yes nor no")),
    };
    let state = reader.u8()?;
    let algorithm = algorithm(reader.u8()?)?;
    let digest = reader.array()?;
    let address = address(&mut reader)?;
    let method = Method::new(algorithm, filters(&mut reader)?);
    let phase = phase(&mut reader, body, label, state)?;
    reader.extensions()?;
    Ok(Record {
        version: label.version,
        fence,
        address: Arc::new(address),
        fingerprint: Fingerprint::from_parts(method, digest),
        attempt,
        recovery,
        since: label.since,
        phase,
    })
}

fn phase(
    reader: &mut Reader<'_>,
    body: &Body<'_>,
    label: &Label,
    state: u8,
) -> Result<Phase, CodecError> {
    let stateless = |phase| match state {
        0 => Ok(phase),
        _ => Err(CodecError::Malformed("its phase has no keeping and no cause")),
    };
    let end = label.end.unwrap_or(Timestamp::ZERO);
    match label.kind {
        Kind::Claimed => {
            let lease_until = label.lease_until.unwrap_or(Timestamp::ZERO);
            stateless(Phase::Claimed { lease_until })
        }
        Kind::Released => stateless(Phase::Released { until: end }),
        Kind::Unknown => Ok(Phase::Unknown { cause: cause(state)? }),
        Kind::Done => {
            let keeping = keeping(state)?;
            let outcome = Arc::new(outcome(reader, body)?);
            Ok(Phase::Done { outcome, keeping, expires_at: end })
        }
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).expect("invariant: names have at most 255 bytes"));
    out.extend_from_slice(name.as_bytes());
}

fn address(reader: &mut Reader<'_>) -> Result<Address, CodecError> {
    let tenant = Tenant::new(reader.name()?)?;
    let scope = match reader.name()? {
        // No principal is empty, so length zero stands for "none" and for nothing else.
        "" => Scope::tenant_wide(tenant),
        name => Scope::of(tenant, Principal::new(name)?),
    };
    let operation = Operation::new(reader.name()?)?;
    // The widest grammar: which of them the key was checked by is a matter of its door.
    let key = Key::new(reader.name()?)?;
    Ok(Address::new(scope, operation, key))
}

fn put_filters(out: &mut Vec<u8>, filters: Option<&Filters>) {
    let Some(filters) = filters else {
        out.extend_from_slice(&[0, 0]);
        return;
    };
    put_count(out, filters.ignored().len());
    for pointer in filters.ignored() {
        put_bytes(out, pointer.to_string().as_bytes());
    }
    put_count(out, filters.parts().len());
    for part in filters.parts() {
        put_bytes(out, part.as_bytes());
    }
}

fn filters(reader: &mut Reader<'_>) -> Result<Filters, CodecError> {
    let mut ignored = Vec::new();
    for _ in 0..entries(reader)? {
        let pointer = Pointer::parse(reader.text()?);
        ignored.push(pointer.map_err(|_| CodecError::Malformed("a filter is no pointer"))?);
    }
    let mut parts = Vec::new();
    for _ in 0..entries(reader)? {
        parts.push(Arc::from(reader.text()?));
    }
    Filters::new(ignored, parts).map_err(|_| TOO_MANY_FILTERS)
}

const TOO_MANY_FILTERS: CodecError = CodecError::Malformed("it has too many filters");

fn entries(reader: &mut Reader<'_>) -> Result<usize, CodecError> {
    match reader.count()? {
        count if count <= Filters::ENTRIES_MAX => Ok(count),
        _ => Err(TOO_MANY_FILTERS),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Outcome::Response { status, headers, body } => {
            out.push(RESPONSE);
            out.extend_from_slice(&status.code().to_be_bytes());
            put_count(out, headers.len());
            for Header { name, value } in headers {
                put_bytes(out, name.as_bytes());
                put_bytes(out, value);
            }
            put_bytes(out, body);
        }
        Outcome::Value(bytes) => {
            out.push(VALUE);
            put_bytes(out, bytes);
        }
        Outcome::Failure(bytes) => {
            out.push(FAILURE);
            put_bytes(out, bytes);
        }
        Outcome::NotKept { status } => {
            out.push(NOT_KEPT);
            out.extend_from_slice(&status.map_or(0, Status::code).to_be_bytes());
        }
    }
}

fn outcome(reader: &mut Reader<'_>, body: &Body<'_>) -> Result<Outcome, CodecError> {
    match reader.u8()? {
        RESPONSE => response(reader, body),
        VALUE => Ok(Outcome::Value(body.share(reader.bytes()?))),
        FAILURE => Ok(Outcome::Failure(body.share(reader.bytes()?))),
        NOT_KEPT => match reader.u16()? {
            0 => Ok(Outcome::NotKept { status: None }),
            code => Ok(Outcome::NotKept { status: Some(status(code)?) }),
        },
        _ => Err(CodecError::Malformed("its outcome is of no known kind")),
    }
}

fn response(reader: &mut Reader<'_>, body: &Body<'_>) -> Result<Outcome, CodecError> {
    let status = status(reader.u16()?)?;
    let count = reader.count()?;
    // One copy for all values; they share it.
    let kept = body.share(reader.rest());
    let mut values = Reader::new(&kept);
    let mut headers = Vec::with_capacity(count.min(HEADERS_AHEAD_MAX));
    for _ in 0..count {
        let name = values.text()?.into();
        headers.push(Header { name, value: part(&kept, values.bytes()?) });
    }
    let body = part(&kept, values.bytes()?);
    reader.take(kept.len() - values.rest().len())?;
    Ok(Outcome::Response { status, headers, body })
}

fn part(kept: &Bytes, part: &[u8]) -> Bytes {
    kept.slice_ref(part)
}

fn status(code: u16) -> Result<Status, CodecError> {
    Status::new(code).ok_or(CodecError::Malformed("its status is none"))
}

// The numbers below are stored, so none is ever given another meaning.

const fn algorithm_number(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Raw => 1,
        Algorithm::Json => 2,
    }
}

const fn algorithm(number: u8) -> Result<Algorithm, CodecError> {
    match number {
        1 => Ok(Algorithm::Raw),
        2 => Ok(Algorithm::Json),
        _ => Err(CodecError::Malformed("its fingerprint was made in no known way")),
    }
}

const fn keeping_number(keeping: Keeping) -> u8 {
    match keeping {
        Keeping::Final => 1,
        Keeping::Retryable => 2,
    }
}

const fn keeping(number: u8) -> Result<Keeping, CodecError> {
    match number {
        1 => Ok(Keeping::Final),
        2 => Ok(Keeping::Retryable),
        _ => Err(CodecError::Malformed("its keeping is none that is known")),
    }
}

const fn cause_number(cause: Cause) -> u8 {
    match cause {
        Cause::Silence => 1,
        Cause::TimedOut => 2,
        Cause::Panicked => 3,
        Cause::Reported => 4,
        Cause::Unrecovered => 5,
    }
}

const fn cause(number: u8) -> Result<Cause, CodecError> {
    match number {
        1 => Ok(Cause::Silence),
        2 => Ok(Cause::TimedOut),
        3 => Ok(Cause::Panicked),
        4 => Ok(Cause::Reported),
        5 => Ok(Cause::Unrecovered),
        _ => Err(CodecError::Malformed("its cause is none that is known")),
    }
}
