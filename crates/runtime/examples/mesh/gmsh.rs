//! Reads triangles from mesh files of Gmsh: format 4.1, ASCII.
//!
//! A file has sections. This reader needs `$MeshFormat`, `$Nodes` and `$Elements`, in this order, and skips the others.
//! It reads elements of the type 2, which are triangles of three nodes, and skips other elements. Nodes without a
//! triangle, such as the centre of a circle, are read too.

use std::collections::HashMap;
use std::iter::Enumerate;
use std::str::{FromStr, Lines, SplitWhitespace};

use thiserror::Error;

/// Triangles in the plane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mesh {
    /// The places of the nodes.
    pub(crate) nodes: Vec<[f64; 2]>,
    /// The three nodes of each triangle, as places in `nodes`. No triangle has an area of zero.
    pub(crate) triangles: Vec<[usize; 3]>,
}

/// Why a file is refused. Lines count from 1.
#[derive(Clone, Debug, Error, PartialEq)]
pub(crate) enum GmshError {
    #[error("line {line}: the file ends, expected {wanted}")]
    Ended { line: usize, wanted: String },
    #[error("line {line}: found {found:?}, expected {wanted}")]
    Unexpected { line: usize, found: String, wanted: String },
    #[error("line {line}: version {found}, the only one that is read is 4.1")]
    Version { line: usize, found: String },
    #[error("line {line}: file type {found}, the only one that is read is 0, ASCII")]
    FileType { line: usize, found: u64 },
    #[error("line {line}: {found} {what} in the blocks, but {limit} in the head of the section")]
    Count { line: usize, what: &'static str, found: u64, limit: u64 },
    #[error("line {line}: node {node} occurs again, a number has at most 1 node")]
    Repeated { line: usize, node: u64 },
    #[error("line {line}: node {node} has {axis} = {value}, expected {wanted}")]
    Place { line: usize, node: u64, axis: char, value: f64, wanted: &'static str },
    #[error("line {line}: triangle {triangle} has node {node}, which is none of the {nodes} nodes")]
    UnknownNode { line: usize, triangle: u64, node: u64, nodes: usize },
    #[error("line {line}: triangle {triangle} has an area of {area}, expected more than 0")]
    Area { line: usize, triangle: u64, area: f64 },
    #[error("line {line}: the file has 0 triangles, at least 1 is needed")]
    Empty { line: usize },
}

type Result<T> = std::result::Result<T, GmshError>;

/// Reads the text of a file.
pub(crate) fn read(text: &str) -> Result<Mesh> {
    let mut file = File { lines: text.lines().enumerate(), line: 0 };
    file.expect("$MeshFormat")?;
    format(&mut file)?;
    file.expect("$EndMeshFormat")?;
    file.skip_to("$Nodes")?;
    let nodes = nodes(&mut file)?;
    file.expect("$EndNodes")?;
    file.skip_to("$Elements")?;
    let triangles = triangles(&mut file, &nodes)?;
    file.expect("$EndElements")?;
    // What comes after is not used, but a section without an end shows that the file was cut off.
    while let Some(name) = file.section()? {
        file.skip(name)?;
    }
    match triangles.is_empty() {
        true => Err(GmshError::Empty { line: file.line }),
        false => Ok(Mesh { nodes: nodes.places, triangles }),
    }
}

/// Nodes, and where each number of the file is among them.
#[derive(Default)]
struct Nodes {
    places: Vec<[f64; 2]>,
    indices: HashMap<u64, usize>,
}

fn format(file: &mut File<'_>) -> Result<()> {
    let mut words = file.words("version, file type and data size")?;
    let (line, version): (_, String) = (words.line, words.next("a version")?);
    if version != "4.1" {
        return Err(GmshError::Version { line, found: shortened(&version) });
    }
    match words.next("a file type")? {
        0 => Ok(()),
        found => Err(GmshError::FileType { line, found }),
    }
}

/// Numbers in files are not trusted: memory grows with the lines that are there, not with the counts.
fn nodes(file: &mut File<'_>) -> Result<Nodes> {
    let mut head = file.words("numbers of blocks and nodes")?;
    let (blocks, limit): (u64, u64) =
        (head.next("a number of blocks")?, head.next("a number of nodes")?);
    let (mut nodes, mut found) = (Nodes::default(), 0_u64);
    for _ in 0..blocks {
        let mut head = file.words("a block of nodes")?;
        let (_, _): (u64, i64) = (head.next("a dimension")?, head.next("an entity")?);
        let _: u64 = head.next("0 or 1, whether nodes have parameters")?;
        let count: u64 = head.next("a number of nodes")?;
        found = found.saturating_add(count);
        if found > limit {
            return Err(GmshError::Count { line: head.line, what: "nodes", found, limit });
        }
        // First all numbers, then all places.
        let mut numbers = Vec::new();
        for _ in 0..count {
            let mut words = file.words("the number of a node")?;
            let (line, node) = (words.line, words.next("the number of a node")?);
            if nodes.indices.insert(node, nodes.places.len() + numbers.len()).is_some() {
                return Err(GmshError::Repeated { line, node });
            }
            numbers.push(node);
        }
        for node in numbers {
            nodes.places.push(place(file, node)?);
        }
    }
    match found == limit {
        true => Ok(nodes),
        false => Err(GmshError::Count { line: file.line, what: "nodes", found, limit }),
    }
}

/// The place of a node: finite, and in the plane. Parameters of the node may follow.
fn place(file: &mut File<'_>, node: u64) -> Result<[f64; 2]> {
    let mut words = file.words("the place of a node")?;
    let mut place = [0.0; 3];
    for (axis, to) in ['x', 'y', 'z'].into_iter().zip(&mut place) {
        let value: f64 = words.next("a coordinate")?;
        let wanted = if axis == 'z' { "0" } else { "a finite number" };
        if !value.is_finite() || (axis == 'z' && value != 0.0) {
            return Err(GmshError::Place { line: words.line, node, axis, value, wanted });
        }
        *to = value;
    }
    Ok([place[0], place[1]])
}

fn triangles(file: &mut File<'_>, nodes: &Nodes) -> Result<Vec<[usize; 3]>> {
    let mut head = file.words("numbers of blocks and elements")?;
    let (blocks, limit): (u64, u64) =
        (head.next("a number of blocks")?, head.next("a number of elements")?);
    let (mut triangles, mut found) = (Vec::new(), 0_u64);
    for _ in 0..blocks {
        let mut head = file.words("a block of elements")?;
        let (_, _): (u64, i64) = (head.next("a dimension")?, head.next("an entity")?);
        let (kind, count): (u64, u64) =
            (head.next("a type of elements")?, head.next("a number of elements")?);
        found = found.saturating_add(count);
        if found > limit {
            return Err(GmshError::Count { line: head.line, what: "elements", found, limit });
        }
        for _ in 0..count {
            let mut words = file.words("an element")?;
            let element = words.next("the number of an element")?;
            if kind == TRIANGLE {
                triangles.push(triangle(&mut words, element, nodes)?);
            }
        }
    }
    match found == limit {
        true => Ok(triangles),
        false => Err(GmshError::Count { line: file.line, what: "elements", found, limit }),
    }
}

/// Gmsh's number for triangles of three nodes.
const TRIANGLE: u64 = 2;

fn triangle(words: &mut Words<'_>, triangle: u64, nodes: &Nodes) -> Result<[usize; 3]> {
    let (line, mut corners) = (words.line, [0; 3]);
    for corner in &mut corners {
        let node = words.next("the node of a triangle")?;
        let nodes = &nodes.indices;
        let unknown = GmshError::UnknownNode { line, triangle, node, nodes: nodes.len() };
        *corner = *nodes.get(&node).ok_or(unknown)?;
    }
    let [a, b, c] = corners.map(|node| nodes.places[node]);
    let area = ((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])).abs() / 2.0;
    // Gradients are divided by the area.
    match area.is_normal() {
        true => Ok(corners),
        false => Err(GmshError::Area { line, triangle, area }),
    }
}

/// The lines of a file that have not been read.
struct File<'a> {
    lines: Enumerate<Lines<'a>>,
    /// The number of the last line that was read.
    line: usize,
}

impl<'a> File<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (index, text) = self.lines.next()?;
        self.line = index + 1;
        Some(text.trim())
    }

    fn words(&mut self, wanted: &str) -> Result<Words<'a>> {
        let ended = GmshError::Ended { line: self.line, wanted: wanted.to_owned() };
        let text = self.next().ok_or(ended)?;
        Ok(Words { line: self.line, words: text.split_whitespace() })
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        let (line, wanted) = (self.line, wanted.to_owned());
        match self.next() {
            None => Err(GmshError::Ended { line, wanted }),
            Some(found) if found == wanted => Ok(()),
            Some(found) => {
                Err(GmshError::Unexpected { line: self.line, found: shortened(found), wanted })
            }
        }
    }

    /// The name of the next section, without `$`, after empty lines. `None` at the end of the file.
    fn section(&mut self) -> Result<Option<&'a str>> {
        let text = loop {
            match self.next() {
                Some("") => {}
                Some(text) => break text,
                None => return Ok(None),
            }
        };
        match text.strip_prefix('$') {
            Some(name) => Ok(Some(name)),
            None => {
                let (found, wanted) = (shortened(text), "a section".to_owned());
                Err(GmshError::Unexpected { line: self.line, found, wanted })
            }
        }
    }

    /// Skips the rest of a section.
    fn skip(&mut self, section: &str) -> Result<()> {
        let wanted = format!("$End{section}");
        loop {
            match self.next() {
                Some(text) if text == wanted => return Ok(()),
                Some(_) => {}
                None => return Err(GmshError::Ended { line: self.line, wanted }),
            }
        }
    }

    /// Skips sections before this one, which is named with `$`.
    fn skip_to(&mut self, wanted: &str) -> Result<()> {
        while let Some(name) = self.section()? {
            if wanted.strip_prefix('$') == Some(name) {
                return Ok(());
            }
            self.skip(name)?;
        }
        Err(GmshError::Ended { line: self.line, wanted: wanted.to_owned() })
    }
}

/// The words of a line that have not been read.
struct Words<'a> {
    line: usize,
    words: SplitWhitespace<'a>,
}

impl Words<'_> {
    fn next<T: FromStr>(&mut self, wanted: &str) -> Result<T> {
        let found = self.words.next().unwrap_or("");
        found.parse().map_err(|_| GmshError::Unexpected {
            line: self.line,
            found: shortened(found),
            wanted: wanted.to_owned(),
        })
    }
}

/// What an error shows of a text, which may be long.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}
