//! Files that are read, and the errors of those that are not.

use crate::gmsh::{GmshError, Mesh, read};
use crate::problem::ANNULUS;

/// A square of two triangles, with a line, and with two sections that are skipped.
const SQUARE: &str = "$MeshFormat
4.1 0 8
$EndMeshFormat
$PhysicalNames
1
2 1 \"all\"
$EndPhysicalNames
$Nodes
2 5 1 70
0 1 0 1
70
9 9 0
2 1 1 4
30
4
17
8
0 0 0 0.1 0.2
1 0 0 0.1 0.2
1 1 0 0.1 0.2
0 1 0 0.1 0.2
$EndNodes
$Elements
2 3 1 3
1 1 1 1
1 30 4
2 1 2 2
2 30 4 17
3 8 30 17
$EndElements
$Periodic
0
$EndPeriodic
";

/// The square with the first `from` replaced.
fn altered(from: &str, to: &str) -> Result<Mesh, GmshError> {
    assert!(SQUARE.contains(from), "{from}");
    read(&SQUARE.replacen(from, to, 1))
}

#[test]
fn triangles_are_read_and_other_elements_are_skipped() {
    let nodes = vec![[9.0, 9.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    let square = Mesh { nodes, triangles: vec![[1, 2, 3], [4, 1, 3]] };
    assert_eq!(read(SQUARE), Ok(square.clone()));
    assert_eq!(read(&SQUARE.replace('\n', "\r\n")), Ok(square.clone()));
    assert_eq!(read(&SQUARE.replace("\n$Elements", "\n\n$Elements")), Ok(square));
    let annulus = read(ANNULUS).unwrap();
    assert_eq!((annulus.nodes.len(), annulus.triangles.len()), (189, 301));
}

#[test]
fn a_file_that_is_cut_at_a_line_is_an_error_or_whole() {
    let (whole, lines) = (read(ANNULUS).unwrap(), ANNULUS.lines().count());
    for kept in 0..=lines {
        let cut: String = ANNULUS.split_inclusive('\n').take(kept).collect();
        match read(&cut) {
            Ok(mesh) => assert!(kept == lines && mesh == whole, "{kept} lines"),
            Err(GmshError::Ended { line, .. }) => assert!(kept < lines && line == kept),
            Err(error) => panic!("{kept} lines: {error}"),
        }
    }
}

#[test]
fn a_file_that_is_cut_at_a_byte_is_an_error_or_whole() {
    let (whole, end) = (read(SQUARE), "$EndElements\n");
    // Sections after the last one that is needed may be absent, but not half there.
    let needed = SQUARE.find(end).unwrap() + end.len();
    for kept in 0..=SQUARE.len() {
        let is_whole = [needed - 1, needed, SQUARE.len() - 1, SQUARE.len()].contains(&kept);
        match read(&SQUARE[..kept]) {
            Ok(mesh) => assert!(is_whole && Ok(mesh) == whole, "{kept} bytes"),
            Err(error) => assert!(!is_whole, "{kept} bytes: {error}"),
        }
    }
}

#[test]
fn a_line_that_is_absent_is_an_error() {
    let lines: Vec<_> = ANNULUS.split_inclusive('\n').collect();
    // Lines of `$Entities` are not read.
    for absent in (0..lines.len()).filter(|line| !(3..10).contains(line)) {
        let rest: String = lines[..absent].iter().chain(&lines[absent + 1..]).copied().collect();
        read(&rest).expect_err(&format!("without line {}", absent + 1));
    }
}

#[test]
fn errors_name_the_line_the_value_and_the_limit() {
    for (from, to, error) in [
        ("$MeshFormat", "$Nodes", "line 1: found \"$Nodes\", expected $MeshFormat"),
        ("4.1", "2.2", "line 2: version 2.2, the only one that is read is 4.1"),
        ("4.1 0", "4.1 1", "line 2: file type 1, the only one that is read is 0, ASCII"),
        ("4.1 0", "4.1 -1", "line 2: found \"-1\", expected a file type"),
        ("$PhysicalNames", "names", "line 4: found \"names\", expected a section"),
        ("2 5 1", "2 4 1", "line 13: 5 nodes in the blocks, but 4 in the head of the section"),
        ("2 5 1", "2 6 1", "line 21: 5 nodes in the blocks, but 6 in the head of the section"),
        ("2 5 1", "1 5 1", "line 12: 1 nodes in the blocks, but 5 in the head of the section"),
        ("1 4\n", "1 99999999999999\n", "line 13: 100000000000000 nodes in the blocks, but 5 in"),
        ("\n17", "\n30", "line 16: node 30 occurs again, a number has at most 1 node"),
        ("\n17", "\n-17", "line 16: found \"-17\", expected the number of a node"),
        ("1 1 0", "1 NaN 0", "line 20: node 17 has y = NaN, expected a finite number"),
        ("1 1 0", "1 1 0.5", "line 20: node 17 has z = 0.5, expected 0"),
        ("1 1 0 0.1 0.2", "1 1", "line 20: found \"\", expected a coordinate"),
        ("2 3 1 3", "2 2 1 3", "line 27: 3 elements in the blocks, but 2 in the head of the"),
        ("2 3 1 3", "2 4 1 3", "line 29: 3 elements in the blocks, but 4 in the head of the"),
        ("4 17", "5 17", "line 28: triangle 2 has node 5, which is none of the 5 nodes"),
        ("4 17", "4", "line 28: found \"\", expected the node of a triangle"),
        ("4 17", "4 4", "line 28: triangle 2 has an area of 0, expected more than 0"),
        ("1 0 0", "-1e308 1e308 0", "line 28: triangle 2 has an area of inf, expected"),
        ("2 1 2 2", "2 1 3 2", "line 33: the file has 0 triangles, at least 1 is needed"),
        ("0\n$EndPeriodic", "", "line 32: the file ends, expected $EndPeriodic"),
    ] {
        let said = altered(from, to).unwrap_err().to_string();
        assert!(said.starts_with(error), "{said}, not {error}");
    }
}

#[test]
fn memory_does_not_grow_with_the_counts_of_a_file() {
    let most = u64::MAX.to_string();
    let text = format!("$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n{most} {most} 1 1\n");
    let error = read(&format!("{text}2 1 0 {most}\n1\n")).unwrap_err();
    assert_eq!(error.to_string(), "line 7: the file ends, expected the number of a node");
}
