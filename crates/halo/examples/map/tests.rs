//! Tests of pictures.

use std::env;
use std::fs;
use std::path::PathBuf;

use roxmltree::{Document, Node};

use crate::{describe, messages, picture};

/// The pictures in the documentation, with their periodic axes.
const SHOWN: [(&str, &str, &str); 2] =
    [("cube:2x3", "", "cube-2x3.svg"), ("box:12x24/2x3", "xy", "box-2x3.svg")];

fn drawn(description: &str, periodic: &str) -> String {
    let topology = describe::topology(description, periodic).unwrap();
    picture::draw(&topology, description, None).unwrap()
}

fn of_class<'a>(document: &'a Document<'_>, class: &str) -> Vec<Node<'a, 'a>> {
    let all = document.root().descendants();
    all.filter(|node| node.attribute("class") == Some(class)).collect()
}

/// Without the attributes of the legend.
fn attributes(document: &Document<'_>, class: &str, names: &[&str]) -> Vec<String> {
    let words = |node: Node<'_, '_>| {
        let words: Vec<&str> = names.iter().map(|name| node.attribute(*name).unwrap()).collect();
        words.join(", ")
    };
    let named = of_class(document, class).into_iter().filter(|node| node.has_attribute(names[0]));
    named.map(words).collect()
}

#[test]
fn the_cube_has_every_rank_and_every_seam_once() {
    let text = drawn("cube:2x3", "");
    let document = Document::parse(&text).unwrap();
    let ranks: Vec<String> = (0..36).map(|rank| rank.to_string()).collect();
    assert_eq!(attributes(&document, "rank", &["data-rank"]), ranks);
    assert_eq!(
        attributes(&document, "seam", &["data-from", "data-to", "data-symmetry"]),
        [
            "0 west, 4 north, quarter",
            "0 south, 5 north, identity",
            "0 north, 2 west, three-quarters",
            "0 east, 1 west, identity",
            "1 south, 5 east, three-quarters",
            "1 north, 2 south, identity",
            "1 east, 3 south, quarter",
            "2 north, 4 west, three-quarters",
            "2 east, 3 west, identity",
            "3 north, 4 south, identity",
            "3 east, 5 south, quarter",
            "4 east, 5 west, identity",
        ]
    );
    // Twelve edges, five of which are unfolded, and three tiles at each of eight corners.
    let lines = |node: &Node<'_, '_>| node.children().filter(|n| n.has_tag_name("line")).count();
    let folded = of_class(&document, "seam").iter().filter(|seam| lines(seam) == 2).count();
    assert_eq!(folded, 7);
    assert_eq!(attributes(&document, "missing-corner", &["data-tile"]).len(), 24);
    assert_eq!(of_class(&document, "axes").len(), 6);
}

/// Beyond the west side of tile 0 lies the north side of tile 4, reversed: its ranks 29, 28 and 27 from south to north.
#[test]
fn ranks_beyond_a_seam_stand_where_they_lie() {
    let text = drawn("cube:2x3", "");
    let document = Document::parse(&text).unwrap();
    let at = |node: &Node<'_, '_>| -> Vec<f64> {
        let matrix = node.attribute("transform").unwrap();
        let numbers = matrix.trim_start_matches("matrix(").trim_end_matches(')').split(' ');
        numbers.map(|number| number.parse().unwrap()).collect()
    };
    let beyond = of_class(&document, "beyond");
    let mut west: Vec<_> = beyond.iter().filter(|node| at(node)[4] < 46.0).collect();
    west.sort_by(|a, b| at(b)[5].total_cmp(&at(a)[5]));
    let numbers: Vec<&str> = west.iter().map(|node| node.text().unwrap().trim()).collect();
    assert_eq!(numbers, ["29", "28", "27"]);
    // The neighbour's x runs against this tile's y, which means down on the screen.
    assert_eq!(at(west[0])[..4], [0.0, 1.0, -1.0, 0.0]);
    // Seven edges, each from both ends: six are rotated and join sides of three ranks to sides of two; one is straight.
    assert_eq!(beyond.len(), 6 * (3 + 2) + (3 + 3));
}

#[test]
fn boxes_are_open_or_joined_to_themselves() {
    for (description, periodic, ranks, seams, corners) in [
        ("box:8x6/2x2", "", 4, vec![], 0),
        ("box:8x6/2x2", "x", 4, vec!["0 west, 0 east, identity"], 0),
        ("box:8x6/4x1", "xy", 4, vec!["0 west, 0 east, identity", "0 south, 0 north, identity"], 0),
        ("box:9/3", "x", 3, vec!["0 west, 0 east, identity"], 0),
        ("cube:1x1", "", 6, vec![], 24),
    ] {
        let text = drawn(description, periodic);
        let document = Document::parse(&text).unwrap();
        assert_eq!(of_class(&document, "rank").len(), ranks, "{description}");
        if description.starts_with("box") {
            let found = attributes(&document, "seam", &["data-from", "data-to", "data-symmetry"]);
            assert_eq!(found, seams, "{description}");
        }
        assert_eq!(attributes(&document, "missing-corner", &["data-tile"]).len(), corners);
    }
}

#[test]
fn blocks_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("joined.json");
    let links = r#"{"blocks": [[6, 4], [4, 3]], "links": [
        {"rank": 0, "side": "east", "neighbour": 1, "symmetry": "quarter"},
        {"rank": 1, "side": "south", "neighbour": 0, "symmetry": "three-quarters"},
        {"rank": 0, "side": "north", "neighbour": 0, "symmetry": "half"}]}"#;
    fs::write(&file, links).unwrap();
    let description = format!("file:{}", file.display());
    let text = drawn(&description, "");
    let document = Document::parse(&text).unwrap();
    assert_eq!(
        attributes(&document, "seam", &["data-from", "data-to", "data-symmetry"]),
        ["0 north, 0 north, half", "0 east, 1 south, quarter"]
    );
    fs::write(&file, links.replace("[4, 3]", "[4, 3, 2]")).unwrap();
    let error = format!("{:#}", describe::topology(&description, "").unwrap_err());
    assert!(error.contains("rank 1, [4, 3, 2]: a block has 2 numbers of cells"), "{error}");
    let wrong = links.replace("quarter\"", "a-quarter\"");
    fs::write(&file, wrong).unwrap();
    let error = describe::topology(&description, "").unwrap_err();
    assert!(format!("{error:#}").contains("no symmetry \"a-quarter\"; there are identity, "));
}

#[test]
fn bytes_to_neighbours_are_told() {
    let topology = describe::topology("box:8x6/2x1", "").unwrap();
    let sent = messages(&topology, 2).unwrap();
    // Two columns of six values, and the number of the exchange.
    assert_eq!(sent, [[(1, 2 * 6 * 8 + 8)], [(0, 2 * 6 * 8 + 8)]]);
    let text = picture::draw(&topology, "box", Some(&sent)).unwrap();
    assert!(text.contains("rank 0: tile 0, cells 0..4 × 0..6\n104 bytes to rank 1"), "{text}");
    let error = format!("{:#}", messages(&topology, 5).unwrap_err());
    assert!(error.contains("a halo of 5 cells; its neighbour, rank 1, has 4"), "{error}");
}

#[test]
fn bad_topologies_are_one_line_that_names_the_value() {
    for (description, periodic, words) in [
        ("cube:0x3", "", "topology cube:0x3: topology: invalid argument: 0 ranks along an axis"),
        ("cube:2", "", "1 numbers in a layout"),
        ("cube:2x3x4", "", "3 numbers in a layout"),
        ("cube:2/9x1", "", "9 ranks along an axis of 2 cells"),
        ("cube:axb", "", "\"a\" is no number"),
        ("cube:20x20", "", "2400 ranks; a picture has room for 1000"),
        ("cube:2x2", "x", "--periodic x is for boxes"),
        ("box:8x6", "", "a box is CELLS/RANKS"),
        ("box:2147483647/2147483647", "", "2147483647 ranks; at most 16777216"),
        ("box:8x6/2", "", "cells along 2 axes, ranks along 1"),
        ("box:8x6x4/1x1x1", "", "3 axes; a picture has 2"),
        ("box:8x6/2x2", "xz", "no axis z to be periodic; there are x and y"),
        ("ball:3", "", "topology ball:3: there are cube:2x3"),
        ("file:/no/such/file", "", "cannot read it"),
    ] {
        let error = format!("{:#}", describe::topology(description, periodic).unwrap_err());
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

/// `UPDATE_PICTURES=1` writes them again.
#[test]
fn the_pictures_in_the_documentation_are_fresh() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    for (description, periodic, name) in SHOWN {
        let file = folder.join(name);
        let picture = drawn(description, periodic);
        if env::var_os("UPDATE_PICTURES").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &picture).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), picture, "UPDATE_PICTURES=1 writes it anew");
        assert!(picture.len() < 32_000, "{} bytes", picture.len());
    }
}
