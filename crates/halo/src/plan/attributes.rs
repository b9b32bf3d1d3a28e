//! The attributes of an exchange that must be the same on all ranks, in readable form.

use runtime_core::{Combine, Result};

use super::transfer::{BlockFields, Fields, Role, refuse};
use crate::field::FieldSpec;
use crate::options::{ForestOptions, HaloOptions};
use crate::topology::Topology;

/// One attribute: what it is, and its value on this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) what: String,
    pub(crate) value: String,
}

impl Attribute {
    fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into() }
    }
}

/// All attributes of an exchange. Each depends only on earlier ones.
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) topology: Vec<Attribute>,
    pub(crate) options: Vec<Attribute>,
    pub(crate) fields: Vec<Attribute>,
    /// The orders of dimensions in memory.
    orders: Vec<Attribute>,
}

impl Attributes {
    pub(crate) fn new(topology: &Topology, options: &HaloOptions, fields: &Fields) -> Self {
        Self {
            topology: of_topology(topology),
            options: of_options(options),
            fields: of_fields(first_block(fields)),
            orders: orders(first_block(fields)),
        }
    }

    /// Those of a forest, with the items that it exchanges.
    pub(crate) fn of_forest(options: &ForestOptions, items: &[FieldSpec]) -> Self {
        let reductions = reductions(options);
        let options = vec![
            Attribute::new("declared reductions", format!("{reductions:?}")),
            Attribute::new("channel", options.channel.to_string()),
        ];
        let mut fields = vec![Attribute::new("number of fields", items.len().to_string())];
        for (index, item) in items.iter().enumerate() {
            let field = format!("field {index}, {}", in_one_line(item.name()));
            let mut add = |what, value| fields.push(Attribute { what, value });
            add(format!("name of field {index}"), in_one_line(item.name()));
            add(format!("element type of {field}"), item.dtype().to_string());
            add(format!("shape of an item of {field}"), format!("{:?}", item.layout().shape()));
        }
        let topology = vec![Attribute::new("kind of exchange", "forest")];
        Self { topology, options, fields, orders: Vec::new() }
    }

    pub(crate) fn into_all(self) -> Vec<Attribute> {
        [self.topology, self.options, self.fields, self.orders].concat()
    }
}

fn of_topology(topology: &Topology) -> Vec<Attribute> {
    let mut all = vec![
        Attribute::new("number of axes", topology.axes().to_string()),
        Attribute::new("number of tiles", topology.tiles().to_string()),
    ];
    for (number, tile) in topology.cuts().enumerate() {
        for (axis, cuts) in tile.iter().enumerate() {
            let what = format!("division of tile {number} along axis {axis}");
            all.push(Attribute::new(what, format!("cells {cuts:?}")));
        }
    }
    let owners = topology.owners().unwrap_or_default();
    let spread = match owners {
        [] => "one on each rank".to_owned(),
        _ => format!("{} on {} ranks", owners.len(), topology.ranks()),
    };
    all.push(Attribute::new("number of blocks", spread));
    for (block, rank) in owners.iter().enumerate() {
        all.push(Attribute::new(format!("rank of block {block}"), rank.to_string()));
    }
    let regions: Vec<_> = topology.regions().collect();
    let count = if topology.has_regions() { regions.len().to_string() } else { "none".to_owned() };
    all.push(Attribute::new("number of boxes of ghosts", count));
    for (number, (block, neighbour, boxes)) in regions.into_iter().enumerate() {
        let value = format!("block {block}, from block {neighbour}: {boxes}");
        all.push(Attribute::new(format!("box of ghosts, number {number}"), value));
    }
    all.push(Attribute::new("number of joined sides", topology.seams().count().to_string()));
    for (number, seam) in topology.seams().enumerate() {
        let (tile, side) = (seam.tile, seam.side);
        let value =
            format!("tile {tile}, side {side}, to tile {} by {}", seam.neighbour, seam.symmetry);
        all.push(Attribute::new(format!("joined side, number {number}"), value));
    }
    all
}

fn of_options(options: &HaloOptions) -> Vec<Attribute> {
    let HaloOptions { reach, missing_corners, messages, channel, .. } = options;
    let limit = match messages.limit() {
        usize::MAX => "any number of bytes".to_owned(),
        limit => format!("{limit} bytes"),
    };
    vec![
        Attribute::new("reach", format!("{reach:?}")),
        Attribute::new("choice of missing corners", format!("{missing_corners:?}")),
        Attribute::new("limit of fields that share a message", limit),
        Attribute::new("channel", channel.to_string()),
    ]
}

fn of_fields(BlockFields { specs, roles, .. }: BlockFields<'_>) -> Vec<Attribute> {
    let mut all = vec![Attribute::new("number of fields", specs.len().to_string())];
    let mut add = |what: String, value: String| all.push(Attribute { what, value });
    for (index, (spec, Role { name, kind, .. })) in specs.iter().zip(roles).enumerate() {
        let name = in_one_line(name);
        let field = format!("field {index}, {name}");
        add(format!("name of field {index}"), name);
        add(format!("kind of {field}"), format!("{kind:?}"));
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
    all
}

/// Checks that all blocks of a rank have the same fields.
pub(crate) fn check_blocks(fields: &Fields, rank: usize) -> Result<()> {
    let (first, others) = fields.blocks().split_first().unwrap_or((&0, &[]));
    let expected = of_fields(fields.of(*first));
    for block in others {
        let own = of_fields(fields.of(*block));
        if let Some((own, expected)) = own.iter().zip(&expected).find(|(one, other)| one != other) {
            let (what, value) = (&own.what, &own.value);
            return Err(refuse(format!(
                "block {block} of rank {rank} has another {what} than block {first}: {value} in block {block}, {} in \
                 block {first}",
                expected.value
            )));
        }
    }
    Ok(())
}

/// The declared reductions in a fixed order, each once.
pub(crate) fn reductions(options: &ForestOptions) -> Vec<Combine> {
    let all = [Combine::Replace, Combine::Sum, Combine::Min, Combine::Max];
    all.into_iter().filter(|combine| options.reductions.contains(combine)).collect()
}

fn orders(BlockFields { specs, roles, .. }: BlockFields<'_>) -> Vec<Attribute> {
    let order = |(index, (spec, role)): (usize, (&FieldSpec, &Role))| {
        let order: Vec<usize> =
            spec.memory_order().filter(|dim| spec.dims()[*dim].points() > 1).collect();
        let name = in_one_line(&role.name);
        let what = format!("order of dimensions in memory of field {index}, {name}");
        Attribute::new(what, format!("{order:?}"))
    };
    specs.iter().zip(roles).enumerate().map(order).collect()
}

/// The fields of the first block of the rank.
fn first_block(fields: &Fields) -> BlockFields<'_> {
    fields.of(fields.blocks()[0])
}

/// A name in one line without zeros: attributes are sent as lines that end with zeros.
fn in_one_line(name: &str) -> String {
    name.escape_debug().to_string()
}
