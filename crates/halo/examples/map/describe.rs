//! Makes topologies from descriptions and files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use halo::{Link, Side, Symmetry, Topology};
use serde::Deserialize;

/// The most ranks that fit in a picture.
const MOST: usize = 1000;

/// Makes a topology from its description; `periodic` names the periodic axes of a box.
pub(crate) fn topology(description: &str, periodic: &str) -> Result<Topology> {
    let (kind, rest) = description.split_once(':').unwrap_or((description, ""));
    ensure!(
        periodic.is_empty() || kind == "box",
        "--periodic {periodic} is for boxes, not for {description}"
    );
    let made = match kind {
        "cube" => cube(rest),
        "box" => cells_in_a_box(rest, periodic),
        "file" => blocks(Path::new(rest)),
        _ => {
            bail!("topology {description}: there are cube:2x3, cube:48/2x3, box:8x6/2x2, file:PATH")
        }
    };
    let topology = made.with_context(|| format!("topology {description}"))?;
    let ranks = topology.ranks();
    ensure!(ranks <= MOST, "topology {description}: {ranks} ranks; a picture has room for {MOST}");
    Ok(topology)
}

fn cube(words: &str) -> Result<Topology> {
    let (cells, layout) = match words.split_once('/') {
        Some((cells, layout)) => (Some(number(cells)?), layout),
        None => (None, words),
    };
    let layout = numbers(layout)?;
    let [rows, columns] = layout[..] else {
        bail!("{} numbers in a layout of rows and columns", layout.len());
    };
    // Enough cells that all blocks are equal and a halo of a few cells fits.
    let alike = rows.max(1).saturating_mul(columns.max(1)).saturating_mul(4);
    Ok(Topology::cubed_sphere(cells.unwrap_or(alike), [rows, columns])?)
}

fn cells_in_a_box(words: &str, periodic: &str) -> Result<Topology> {
    let (cells, ranks) = words.split_once('/').context("a box is CELLS/RANKS: box:8x6/2x2")?;
    let (cells, ranks) = (numbers(cells)?, numbers(ranks)?);
    ensure!(cells.len() <= 2, "{} axes; a picture has 2", cells.len());
    let names = &["x", "y"][..cells.len()];
    let unknown = periodic.chars().find(|axis| !names.contains(&axis.to_string().as_str()));
    if let Some(axis) = unknown {
        bail!("no axis {axis} to be periodic; there are {}", names.join(" and "));
    }
    let wraps: Vec<bool> = names.iter().map(|name| periodic.contains(name)).collect();
    Ok(Topology::cartesian(&cells, &ranks, &wraps)?)
}

/// The contents of a file: the cells of each rank's block, and what lies beyond the sides of the blocks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Blocks {
    blocks: Vec<Vec<usize>>,
    links: Vec<Joined>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Joined {
    rank: usize,
    side: String,
    neighbour: usize,
    symmetry: String,
}

fn blocks(file: &Path) -> Result<Topology> {
    let text = fs::read_to_string(file).context("cannot read it")?;
    let Blocks { blocks, links } = serde_json::from_str(&text)?;
    let blocks = blocks.iter().enumerate().map(|(rank, cells)| {
        let plane = <[usize; 2]>::try_from(&cells[..]);
        plane.with_context(|| format!("rank {rank}, {cells:?}: a block has 2 numbers of cells"))
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    let links = links.iter().map(|link| {
        let side = one_of(&sides(), &link.side, "side")?;
        let symmetry = one_of(&Symmetry::ALL, &link.symmetry, "symmetry")?;
        Ok(Link { rank: link.rank, side, neighbour: link.neighbour, symmetry })
    });
    Ok(Topology::of_blocks(&blocks, &links.collect::<Result<Vec<_>>>()?)?)
}

/// All sides and corners in the plane.
fn sides() -> Vec<Side> {
    (-1..=1).flat_map(|y| (-1..=1).filter_map(move |x| Side::new([x, y]))).collect()
}

/// Returns the element with this name.
fn one_of<T: Copy + ToString>(all: &[T], name: &str, what: &str) -> Result<T> {
    all.iter().copied().find(|one| one.to_string() == name).with_context(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        format!("no {what} {name:?}; there are {}", names.join(", "))
    })
}

fn numbers(words: &str) -> Result<Vec<usize>> {
    words.split('x').map(number).collect()
}

fn number(word: &str) -> Result<usize> {
    word.parse().ok().with_context(|| format!("{word:?} is no number of cells or ranks"))
}
