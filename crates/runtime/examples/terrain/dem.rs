//! Elevations: reading and writing `.npy` files, and repeating terrain to make a larger problem.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ndarray::{Array2, ArrayRef2, ArrayView2, ArrayViewMut2, s};
use ndarray_npy::npy::header::Header;
use ndarray_npy::{ReadNpyError, ReadNpyExt, ReadableElement, WriteNpyExt};
use runtime::Device;

use crate::error::DemoError;

const JACKSBORO: &[u8] = include_bytes!("data/jacksboro_fault_dem.npy");

/// Reads elevations: at least 3 × 3, all finite, row-major. Without a path, those of the Jacksboro fault.
pub(crate) fn read(path: Option<&Path>) -> Result<Array2<f64>, DemoError> {
    let Some(path) = path else {
        return parse(JACKSBORO, Path::new("the built-in terrain"));
    };
    let bytes =
        fs::read(path).map_err(|source| DemoError::Read { path: path.to_owned(), source })?;
    parse(&bytes, path)
}

type Reader = fn(&[u8]) -> Result<Array2<f64>, ReadNpyError>;

fn parse(bytes: &[u8], path: &Path) -> Result<Array2<f64>, DemoError> {
    let path = || path.to_owned();
    let mut data = bytes;
    let header = Header::from_reader(&mut data)
        .map_err(|error| DemoError::NotNpy { path: path(), source: error.into() })?;
    let shape = header.shape;
    if shape.len() != 2 || shape.iter().any(|extent| *extent < 3) {
        return Err(DemoError::Shape { path: path(), shape });
    }
    let found = header.type_descriptor.to_string();
    let (size, read): (u128, Reader) = match found.trim_matches(['\'', '<', '>', '=']) {
        "i2" => (2, read_as::<i16>),
        "i4" => (4, read_as::<i32>),
        "f4" => (4, read_as::<f32>),
        "f8" => (8, read_as::<f64>),
        _ => return Err(DemoError::ElementType { path: path(), found }),
    };
    // Checked before any memory is allocated, because a damaged header can claim any shape.
    let needed = shape.iter().try_fold(size, |bytes, extent| bytes.checked_mul(*extent as u128));
    let needed = needed.unwrap_or(u128::MAX);
    if needed != data.len() as u128 {
        return Err(DemoError::Length { path: path(), shape, needed, found: data.len() });
    }
    let tile = read(bytes).map_err(|source| DemoError::NotNpy { path: path(), source })?;
    match tile.indexed_iter().find(|(_, value)| !value.is_finite()) {
        Some(((row, column), &value)) => {
            Err(DemoError::NotFinite { path: path(), value, row, column })
        }
        None => Ok(tile.as_standard_layout().into_owned()),
    }
}

fn read_as<T: ReadableElement + Copy + Into<f64>>(npy: &[u8]) -> Result<Array2<f64>, ReadNpyError> {
    Ok(Array2::<T>::read_npy(npy)?.mapv(Into::into))
}

/// Writes elevations as an `.npy` file of float64.
pub(crate) fn write(file: &mut File, terrain: &ArrayRef2<f64>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    terrain.view().write_npy(&mut file).map_err(io::Error::other)?;
    file.flush()
}

/// The rows and columns of the terrain repeated `scale` times in each direction.
pub(crate) fn extents(tile: &Array2<f64>, scale: u32) -> Result<[usize; 2], DemoError> {
    let (rows, columns) = tile.dim();
    let times = usize::try_from(scale).ok();
    let extents =
        times.and_then(|times| Some([rows.checked_mul(times)?, columns.checked_mul(times)?]));
    let bytes =
        |extents: &[usize; 2]| extents[0].checked_mul(extents[1])?.checked_mul(size_of::<f64>());
    extents.filter(|extents| bytes(extents).is_some()).ok_or(DemoError::Unaddressable {
        scale,
        rows,
        columns,
    })
}

/// Checks that a device has room for the two grids of a rank. If its memory is the host's, one of the grids is already
/// here.
pub(crate) fn fit(device: &Device, shape: [usize; 2], scale: u32) -> Result<(), DemoError> {
    let cells = (shape[0] as u64).saturating_mul(shape[1] as u64);
    let needed = cells.saturating_mul(2 * size_of::<f64>() as u64);
    match device.info().memory_bytes {
        Some(available) if needed > available => {
            let device = device.id().to_string();
            Err(DemoError::DeviceTooSmall { scale, needed, device, available })
        }
        _ => Ok(()),
    }
}

/// Allocates heights of zero, if there is enough memory.
pub(crate) fn allocate([rows, columns]: [usize; 2], scale: u32) -> Result<Array2<f64>, DemoError> {
    let cells = rows.saturating_mul(columns);
    let mut heights = Vec::new();
    heights.try_reserve_exact(cells).map_err(|source| DemoError::HostTooSmall {
        scale,
        bytes: cells.saturating_mul(size_of::<f64>()),
        source,
    })?;
    heights.resize(cells, 0.0);
    Array2::from_shape_vec((rows, columns), heights).map_err(|_| DemoError::Unaddressable {
        scale,
        rows,
        columns,
    })
}

/// Fills `terrain` with tiles. Every other copy is mirrored, so that heights stay continuous. `terrain` is the part
/// from row `first[0]` and column `first[1]` on.
///
/// No soil crosses a mirror line, so every copy evolves like a single tile with closed boundaries.
pub(crate) fn mirror_tiles(
    tile: &Array2<f64>,
    first: [usize; 2],
    mut terrain: ArrayViewMut2<'_, f64>,
) {
    let (rows, columns) = tile.dim();
    let [top, left] = first;
    let (bottom, right) = (top + terrain.nrows(), left + terrain.ncols());
    for down in top / rows..bottom.div_ceil(rows) {
        for across in left / columns..right.div_ceil(columns) {
            // The intersection of this copy and the terrain, relative to the corner of each.
            let y = top.max(down * rows)..bottom.min((down + 1) * rows);
            let x = left.max(across * columns)..right.min((across + 1) * columns);
            let of = |y0: usize, x0: usize| s![y.start - y0..y.end - y0, x.start - x0..x.end - x0];
            let copy = mirrored(tile, down, across);
            terrain.slice_mut(of(top, left)).assign(&copy.slice(of(down * rows, across * columns)));
        }
    }
}

/// The tile as it appears in row `down` and column `across` of the tiles of [`mirror_tiles`].
pub(crate) fn mirrored(tile: &Array2<f64>, down: usize, across: usize) -> ArrayView2<'_, f64> {
    match (down % 2, across % 2) {
        (0, 0) => tile.view(),
        (0, _) => tile.slice(s![.., ..;-1]),
        (_, 0) => tile.slice(s![..;-1, ..]),
        _ => tile.slice(s![..;-1, ..;-1]),
    }
}
