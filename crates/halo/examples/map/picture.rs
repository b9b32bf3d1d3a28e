//! The picture of a decomposition.

use anyhow::{Result, ensure};
use halo::{Seam, Side, Symmetry, Topology};
use svg::Document;
use svg::node::Value;
use svg::node::element::{Circle, Group, Line, Path, Rectangle, Style, Text, Title};

use crate::net::{Net, Placement, Rect};

/// The longer side of the net.
const SIZE: f64 = 900.0;
/// The space around the net for labels next to its tiles.
const MARGIN: f64 = 46.0;
/// The distances from an edge to the numbers of the ranks beyond it, and to the letter of its seam.
const BESIDE: [f64; 2] = [12.0, 30.0];
/// The height of a line of the legend.
const LINE: f64 = 20.0;

const STYLE: &str = "\
text { font-family: sans-serif; text-anchor: middle; dominant-baseline: central; font-size: 12px; }
.rank rect { fill: #f6f6f3; stroke: #b5b5ad; }
.rank text { font-size: 15px; }
.rank .bytes, .axes text, .beyond { font-size: 10px; fill: #77776f; }
.tile > rect { fill: none; stroke: #33332f; stroke-width: 1.5; }
.axes { stroke: #33332f; fill: #33332f; }
.axes text { stroke: none; }
.seam { stroke-width: 3; }
.seam text { stroke: none; font-size: 13px; font-style: italic; }
.missing-corner { fill: #ffffff; stroke: #c00000; stroke-width: 2; }
.legend text { text-anchor: start; }";

/// The colour and the name of a seam. Seen from its other end, a quarter turn is a three-quarter turn.
fn look(symmetry: Symmetry) -> (&'static str, &'static str) {
    match symmetry {
        Symmetry::IDENTITY => ("#000000", "same axes"),
        Symmetry::QUARTER | Symmetry::THREE_QUARTERS => ("#d55e00", "turned by 90°"),
        Symmetry::HALF => ("#0072b2", "turned by 180°"),
        Symmetry::MIRROR_X => ("#009e73", "x mirrored"),
        Symmetry::MIRROR_Y => ("#56b4e9", "y mirrored"),
        Symmetry::TRANSPOSE => ("#cc79a7", "x and y exchanged"),
        _ => ("#e69f00", "x and y exchanged and mirrored"),
    }
}

/// Unfolded tiles, in the pixels of the picture.
struct Canvas<'a> {
    topology: &'a Topology,
    net: Net,
    /// The cells of each rank in its tile.
    blocks: Vec<(usize, Rect)>,
    bounds: Rect,
    /// The number of pixels for a cell.
    unit: f64,
}

/// An SVG document of a topology with one or two axes. `messages` are the bytes that each rank sends to others.
pub(crate) fn draw(
    topology: &Topology,
    title: &str,
    messages: Option<&[Vec<(usize, usize)>]>,
) -> Result<String> {
    let canvas = Canvas::new(topology)?;
    let mut tiles = Group::new().set("id", "tiles");
    for tile in 0..topology.tiles() {
        tiles = tiles.add(canvas.tile(tile, messages));
    }
    let (mut seams, mut seen) = (Group::new().set("id", "seams"), Vec::new());
    for seam in topology.seams().filter(|seam| seam.side.codimension() == 1) {
        let back = (seam.neighbour, seam.side.through(seam.symmetry));
        if (seam.tile, seam.side) <= back {
            let letters = seen.iter().filter(|(_, is_folded)| *is_folded).count();
            seams = seams.add(canvas.seam(&seam, &letter(letters)));
            seen.push((seam.symmetry, !canvas.net.is_unfolded(&seam)));
        }
        if !canvas.net.is_unfolded(&seam) {
            seams = canvas.ranks_beyond(&seam).into_iter().fold(seams, Group::add);
        }
    }
    let missing = canvas.missing_corners();
    let looks: Vec<_> = seen.iter().map(|(symmetry, _)| look(*symmetry)).collect();
    let [width, height] = canvas.size();
    let (legend, lines) = legend(&looks, !missing.is_empty(), height + LINE);
    let total = height + f64::from(lines + 1) * LINE;
    let document = Document::new()
        .set("viewBox", format!("0 0 {width:.0} {total:.0}"))
        .add(Title::new(title))
        .add(Style::new(STYLE))
        .add(tiles)
        .add(seams)
        .add(missing.into_iter().fold(Group::new().set("id", "corners"), Group::add))
        .add(legend);
    Ok(format!("{document}\n"))
}

impl<'a> Canvas<'a> {
    fn new(topology: &'a Topology) -> Result<Self> {
        ensure!(topology.axes() <= 2, "{} axes; a picture has 2", topology.axes());
        // Blocks with only one axis get some height.
        let mut blocks = Vec::new();
        for rank in 0..topology.ranks() {
            let mut block = topology.block(rank)?;
            if topology.axes() == 1 {
                block.cells[1] = topology.block(0)?.cells[0];
            }
            let ends = |axis: usize| {
                let low = block.start[axis].cast_signed();
                (low, low + block.cells[axis].cast_signed())
            };
            let ((west, east), (south, north)) = (ends(0), ends(1));
            blocks.push((block.tile, Rect { low: [west, south], high: [east, north] }));
        }
        let mut cells = vec![[0; 2]; topology.tiles()];
        for (tile, block) in &blocks {
            for (cells, high) in cells[*tile].iter_mut().zip(block.high) {
                *cells = (*cells).max(high.unsigned_abs());
            }
        }
        let net = Net::new(topology, cells);
        let tiles = (0..topology.tiles()).map(|tile| net.tile(tile));
        let none = Rect { low: [0; 2], high: [0; 2] };
        let bounds = tiles.reduce(|all, tile| all.join(&tile)).unwrap_or(none);
        let longest = (0..2).map(|axis| bounds.high[axis] - bounds.low[axis]).max().unwrap_or(1);
        Ok(Self { topology, net, blocks, bounds, unit: SIZE / pixels(longest) })
    }

    /// Width and height of the net with its margins.
    fn size(&self) -> [f64; 2] {
        let cells = [0, 1].map(|axis| pixels(self.bounds.high[axis] - self.bounds.low[axis]));
        cells.map(|cells| cells * self.unit + 2.0 * MARGIN)
    }

    fn at(&self, point: [isize; 2]) -> [f64; 2] {
        let x = pixels(point[0] - self.bounds.low[0]);
        let y = pixels(self.bounds.high[1] - point[1]);
        [x, y].map(|along| along * self.unit + MARGIN)
    }

    fn rectangle(&self, rect: &Rect) -> Rectangle {
        let ([left, bottom], [right, top]) = (self.at(rect.low), self.at(rect.high));
        Rectangle::new()
            .set("x", round(left))
            .set("y", round(top))
            .set("width", round(right - left))
            .set("height", round(bottom - top))
    }

    fn middle(&self, rect: &Rect) -> [f64; 2] {
        let (a, b) = (self.at(rect.low), self.at(rect.high));
        [0.5 * (a[0] + b[0]), 0.5 * (a[1] + b[1])]
    }

    fn tile(&self, tile: usize, messages: Option<&[Vec<(usize, usize)>]>) -> Group {
        let at = self.net.placed[tile];
        let ranks = self.blocks.iter().enumerate().filter(|(_, (of, _))| *of == tile);
        let mut group = Group::new().set("class", "tile").set("data-tile", tile);
        for (rank, (_, block)) in ranks {
            let [x, y] = self.middle(&at.rect(block));
            let mut title = format!(
                "rank {rank}: tile {tile}, cells {}..{} × {}..{}",
                block.low[0], block.high[0], block.low[1], block.high[1]
            );
            let mut drawn = Group::new().set("class", "rank").set("data-rank", rank);
            let sent = messages.map(|messages| messages[rank].as_slice());
            for (to, bytes) in sent.into_iter().flatten() {
                title += &format!("\n{bytes} bytes to rank {to}");
            }
            drawn = drawn.add(Title::new(title)).add(self.rectangle(&at.rect(block)));
            drawn = drawn.add(text(rank, [x, y]));
            if let Some(sent) = sent {
                let bytes: usize = sent.iter().map(|(_, bytes)| bytes).sum();
                drawn = drawn.add(text(format!("{bytes} B"), [x, y + 14.0]).set("class", "bytes"));
            }
            group = group.add(drawn);
        }
        group.add(self.rectangle(&self.net.tile(tile))).add(self.axes(at))
    }

    /// The axes of a tile, at its first cell.
    fn axes(&self, at: Placement) -> Group {
        let origin = self.at(at.rect(&Rect { low: [0; 2], high: [0; 2] }).low);
        let along = [Side::EAST, Side::NORTH].map(|side| on_screen(at.facing(side)));
        let place = |x: f64, y: f64| [0, 1].map(|k| origin[k] + x * along[0][k] + y * along[1][k]);
        let mut group = Group::new().set("class", "axes");
        for (name, tip, label) in
            [("x", place(26.0, 6.0), place(33.0, 6.0)), ("y", place(6.0, 26.0), place(6.0, 33.0))]
        {
            group = group
                .add(line(place(6.0, 6.0), tip))
                .add(arrow(place(6.0, 6.0), tip, 5.0))
                .add(text(name, label));
        }
        group
    }

    /// The sides that a seam joins. If they lie together, one line; otherwise one line for each side, with an arrow, in
    /// the same direction along both, and a letter.
    fn seam(&self, seam: &Seam, letter: &str) -> Group {
        let (colour, _) = look(seam.symmetry);
        let own = self.net.placed[seam.tile];
        let back = seam.side.through(seam.symmetry);
        let ends = own.edge(self.net.cells[seam.tile], seam.side);
        let mut group = Group::new()
            .set("class", "seam")
            .set("data-from", format!("{} {}", seam.tile, seam.side))
            .set("data-to", format!("{} {back}", seam.neighbour))
            .set("data-symmetry", seam.symmetry.to_string())
            .set("stroke", colour)
            .set("fill", colour);
        if self.net.is_unfolded(seam) {
            let [from, to] = ends.map(|end| self.at(end));
            return group.add(line(from, to));
        }
        let other = self.net.placed[seam.neighbour];
        let mut others = other.edge(self.net.cells[seam.neighbour], back);
        let axis = seam.side.ends().iter().position(|end| *end == 0).unwrap_or(0);
        if seam.symmetry.axis(axis).1 {
            others.reverse();
        }
        let one = (ends, on_screen(own.facing(seam.side)));
        let two = (others, on_screen(other.facing(back)));
        let both = if (seam.tile, seam.side) == (seam.neighbour, back) {
            vec![one]
        } else {
            vec![one, two]
        };
        for (ends, outward) in both {
            let [from, to] = ends.map(|end| self.at(end));
            let middle = [0, 1].map(|k| 0.5 * (from[k] + to[k]));
            let label = [0, 1].map(|k| middle[k] + BESIDE[1] * outward[k]);
            group =
                group.add(line(from, to)).add(arrow(from, middle, 9.0)).add(text(letter, label));
        }
        group
    }

    /// The numbers of the ranks beyond a seam, rotated like their axes.
    fn ranks_beyond(&self, seam: &Seam) -> Vec<Text> {
        let beyond = self.net.beyond(seam);
        let tile = self.net.tile(seam.tile);
        let facing = self.net.placed[seam.tile].facing(seam.side);
        let outward = on_screen(facing);
        let numbers = self.blocks.iter().enumerate().filter_map(|(rank, (of, block))| {
            let block = beyond.rect(block);
            let touches = (0..2).all(|axis| match facing[axis] {
                0 => true,
                1 => block.low[axis] == tile.high[axis],
                _ => block.high[axis] == tile.low[axis],
            });
            if *of != seam.neighbour || !touches {
                return None;
            }
            // Centred along the block's side, and just beyond it.
            let (middle, edge) = (self.middle(&block), self.middle(&tile));
            let half = [0, 1].map(|k| 0.5 * (self.at(tile.high)[k] - self.at(tile.low)[k]).abs());
            let place: [f64; 2] = std::array::from_fn(|k| match facing[k] {
                0 => middle[k],
                _ => edge[k] + (half[k] + BESIDE[0]) * outward[k],
            });
            let [x, y] = [Side::EAST, Side::NORTH].map(|side| on_screen(beyond.facing(side)));
            // Text runs along x, and its height is against y, which points down on the screen.
            let matrix = format!(
                "matrix({} {} {} {} {} {})",
                x[0],
                x[1],
                0.0 - y[0],
                0.0 - y[1],
                round(place[0]),
                round(place[1])
            );
            let number =
                Text::new(rank.to_string()).set("class", "beyond").set("transform", matrix);
            Some(number)
        });
        numbers.collect()
    }

    /// Corners of tiles whose sides are joined but beyond which no cell lies.
    fn missing_corners(&self) -> Vec<Circle> {
        let seams: Vec<(usize, Side)> =
            self.topology.seams().map(|seam| (seam.tile, seam.side)).collect();
        let mut circles = Vec::new();
        for tile in 0..self.topology.tiles() {
            let high = self.net.cells[tile];
            for (x, y) in [(-1, -1), (1, -1), (-1, 1), (1, 1)] {
                let has =
                    |side: Option<Side>| side.is_some_and(|side| seams.contains(&(tile, side)));
                let is_missing =
                    has(Side::new([x, 0])) && has(Side::new([0, y])) && !has(Side::new([x, y]));
                if is_missing {
                    let end =
                        |end: i8, axis: usize| if end < 0 { 0 } else { high[axis].cast_signed() };
                    let at = [end(x, 0), end(y, 1)];
                    let point = self.net.placed[tile].rect(&Rect { low: at, high: at }).low;
                    let [x, y] = self.at(point);
                    let circle =
                        Circle::new().set("class", "missing-corner").set("data-tile", tile);
                    circles.push(circle.set("cx", round(x)).set("cy", round(y)).set("r", 4));
                }
            }
        }
        circles
    }
}

/// Explains the colours. Returns also the number of lines.
fn legend(looks: &[(&str, &str)], has_missing_corners: bool, top: f64) -> (Group, u32) {
    let mut rows: Vec<&(&str, &str)> = Vec::new();
    for look in looks {
        if !rows.contains(&look) {
            rows.push(look);
        }
    }
    let (mut group, mut lines) = (Group::new().set("class", "legend"), 0);
    for (colour, name) in rows {
        let y = top + LINE * f64::from(lines);
        let sample = line([MARGIN, y], [MARGIN + 24.0, y]);
        group = group
            .add(sample.set("stroke", *colour).set("stroke-width", 3))
            .add(text(format!("joined sides, {name}"), [MARGIN + 34.0, y]));
        lines += 1;
    }
    if has_missing_corners {
        let y = top + LINE * f64::from(lines);
        let sample = Circle::new().set("class", "missing-corner").set("r", 4);
        group = group
            .add(sample.set("cx", round(MARGIN + 12.0)).set("cy", round(y)))
            .add(text("corner without a cell beyond it", [MARGIN + 34.0, y]));
        lines += 1;
    }
    (group, lines)
}

/// a to z, then a1, b1 …
fn letter(number: usize) -> String {
    let letter = char::from(b"abcdefghijklmnopqrstuvwxyz"[number % 26]);
    if number < 26 { letter.to_string() } else { format!("{letter}{}", number / 26) }
}

fn line(from: [f64; 2], to: [f64; 2]) -> Line {
    let line = Line::new().set("x1", round(from[0])).set("y1", round(from[1]));
    line.set("x2", round(to[0])).set("y2", round(to[1]))
}

/// The head of an arrow that runs from `from` to `tip`.
fn arrow(from: [f64; 2], tip: [f64; 2], size: f64) -> Path {
    let length = (tip[0] - from[0]).hypot(tip[1] - from[1]).max(f64::MIN_POSITIVE);
    let along = [0, 1].map(|k| (tip[k] - from[k]) / length);
    let corner = |side: f64| {
        let x = tip[0] - size * (along[0] - 0.5 * side * along[1]);
        let y = tip[1] - size * (along[1] + 0.5 * side * along[0]);
        format!("L{} {}", round(x), round(y))
    };
    let outline =
        format!("M{} {} {} {} Z", round(tip[0]), round(tip[1]), corner(1.0), corner(-1.0));
    Path::new().set("d", outline)
}

fn text(content: impl ToString, [x, y]: [f64; 2]) -> Text {
    Text::new(content.to_string()).set("x", round(x)).set("y", round(y))
}

/// A direction in the plane, whose y runs up.
fn on_screen(direction: [isize; 2]) -> [f64; 2] {
    [pixels(direction[0]), pixels(-direction[1])]
}

#[expect(clippy::cast_precision_loss, reason = "a picture has fewer cells than f64 can count")]
fn pixels(cells: isize) -> f64 {
    cells as f64
}

/// Tenths of a pixel are precise enough.
fn round(pixels: f64) -> Value {
    ((pixels * 10.0).round() / 10.0).into()
}
