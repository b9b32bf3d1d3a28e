//! Differences between ranks: the attribute of their descriptions that differs, and its values.

use std::time::Duration;

use runtime_core::{Error, Result};

use crate::communicator::Communicator;
use crate::exchange::agreement::gather;
use crate::plan::fingerprint::Fingerprint;
use crate::plan::transfer::{Fields, refuse};
use crate::{FieldSpec, HaloOptions, Topology};

/// A property that must be the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) what: String,
    pub(crate) value: String,
}

impl Attribute {
    pub(crate) fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into() }
    }
}

/// All properties of an exchange that must be the same on all ranks. Each attribute depends only on earlier ones.
pub(crate) fn attributes(
    topology: &Topology,
    options: &HaloOptions,
    fields: &Fields,
) -> Vec<Attribute> {
    let HaloOptions { reach, missing_corners, messages, channel, .. } = options;
    let mut all = topology.attributes();
    let mut add = |what: String, value: String| all.push(Attribute { what, value });
    add("reach".to_owned(), format!("{reach:?}"));
    add("choice of missing corners".to_owned(), format!("{missing_corners:?}"));
    let limit = match messages.limit() {
        usize::MAX => "any number of bytes".to_owned(),
        limit => format!("{limit} bytes"),
    };
    add("limit of fields that share a message".to_owned(), limit);
    add("channel".to_owned(), channel.to_string());
    let specs = fields.specs();
    add("number of fields".to_owned(), specs.len().to_string());
    // Attributes are sent as lines that end with zeros.
    let name = |spec: &FieldSpec| spec.name().escape_debug().to_string();
    for (index, spec) in specs.iter().enumerate() {
        let field = format!("field {index}, {}", name(spec));
        add(format!("name of field {index}"), name(spec));
        add(format!("kind of {field}"), format!("{:?}", fields.kind(index)));
        add(format!("element type of {field}"), spec.dtype().to_string());
        add(format!("number of dimensions of {field}"), spec.dims().len().to_string());
        for (number, dim) in spec.dims().iter().enumerate() {
            let dimension = format!("dimension {number} of {field}");
            let [below, above] = dim.widths();
            let axis = match dim.along() {
                Some(axis) => format!("axis {axis}"),
                None => format!("no axis, with {} elements", dim.points()),
            };
            let place = if dim.is_staggered() { "points" } else { "cells" };
            add(format!("axis of {dimension}"), axis);
            add(format!("place of values along {dimension}"), place.to_owned());
            add(format!("halo along {dimension}"), format!("{below} below and {above} above"));
        }
    }
    for (index, spec) in specs.iter().enumerate() {
        let order: Vec<usize> =
            spec.memory_order().filter(|dim| spec.dims()[*dim].points() > 1).collect();
        let what = format!("order of dimensions in memory of field {index}, {}", name(spec));
        add(what, format!("{order:?}"));
    }
    all
}

/// Returns the error for ranks whose attributes differ, which names the first that differs. Returns `None` if none
/// differs. All ranks call this together.
///
/// Blocks until all ranks have called it, about log2 of the number of attributes times.
#[cold]
pub(crate) fn find(
    communicator: &dyn Communicator,
    own: &[Attribute],
    channel: u32,
    timeout: Duration,
) -> Result<Option<Error>> {
    let collect = |mine: &[u8]| gather(communicator, channel, mine, timeout);
    let numbers = |own: usize| -> Result<Vec<usize>> {
        let all = collect(&(own as u64).to_le_bytes())?;
        let numbers = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(numbers.map(|number| usize::try_from(number).unwrap_or(usize::MAX)).collect())
    };
    // `prints[n]` is the hash of the first `n` attributes.
    let mut print = Fingerprint::new();
    let mut prints = vec![print.value()];
    for Attribute { what, value } in own {
        print.text(what);
        print.text(value);
        prints.push(print.value());
    }
    let are_alike = |count: usize| -> Result<bool> {
        let all = collect(&prints[count.min(own.len())].to_le_bytes())?;
        let all = all.as_chunks::<{ size_of::<u128>() }>().0;
        Ok(all.iter().all(|print| *print == all[0]))
    };
    let (mut alike, mut unlike) = (0, numbers(own.len())?.into_iter().max().unwrap_or(0));
    if are_alike(unlike)? {
        return Ok(None);
    }
    while unlike - alike > 1 {
        let middle = alike + (unlike - alike) / 2;
        *if are_alike(middle)? { &mut alike } else { &mut unlike } = middle;
    }
    let text = own
        .get(alike)
        .map_or(String::new(), |Attribute { what, value }| format!("{what}\n{value}"));
    let longest = numbers(text.len())?.into_iter().max().unwrap_or(0);
    let mut padded = text.into_bytes();
    padded.resize(longest, 0);
    let all = collect(&padded)?;
    let all: Vec<String> = all
        .chunks(longest.max(1))
        .map(|bytes| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned())
        .collect();
    let others: Vec<usize> = (0..all.len()).filter(|rank| all[*rank] != all[0]).collect();
    let Some(&other) = others.first() else { return Ok(None) };
    let split = |rank: usize| all[rank].split_once('\n').unwrap_or(("attribute", "none"));
    let ((what, first), (_, value)) = (split(0), split(other));
    Ok(Some(refuse(format!(
        "ranks {others:?} have another {what} than rank 0: {value} on rank {other}, {first} on rank 0"
    ))))
}
