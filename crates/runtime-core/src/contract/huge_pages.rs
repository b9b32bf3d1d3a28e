//! Advice to the system about host memory.

use std::ptr::NonNull;

/// Asks the system to use huge pages for these bytes, with which loops over them miss fewer translations of addresses.
/// Call it before they are first touched. They keep their values. A system without huge pages does nothing.
pub fn prefer_huge_pages(first: NonNull<u8>, bytes: usize) {
    /// The size of huge pages on most processors.
    const PAGE: usize = 2 << 20;
    let start = first.addr().get();
    // Only whole pages: others share theirs with other memory.
    let pages = start.div_ceil(PAGE)..start.saturating_add(bytes) / PAGE;
    #[cfg(all(target_os = "linux", not(miri)))]
    if !pages.is_empty() {
        let first = first.as_ptr().with_addr(pages.start * PAGE);
        // SAFETY: the advice changes no values, and the system refuses addresses that are not mapped.
        unsafe { libc::madvise(first.cast(), pages.len() * PAGE, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    drop(pages);
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(miri)))]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The flags of the mapping that has this address.
    fn flags(address: usize) -> String {
        let text = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        let flags = text.lines().find_map(|line| {
            if let Some((start, end)) = line.split(' ').next().and_then(|word| word.split_once('-'))
                && let [Ok(start), Ok(end)] = [start, end].map(|at| usize::from_str_radix(at, 16))
            {
                is_here = (start..end).contains(&address);
            }
            line.strip_prefix("VmFlags:").filter(|_| is_here)
        });
        flags.unwrap().to_owned()
    }

    #[test]
    fn large_memory_has_huge_pages_if_the_system_has_any() {
        let mut large = vec![0_u8; 64 << 20];
        let first = NonNull::from(&mut large[0]);
        let middle = first.addr().get() + (32 << 20);
        prefer_huge_pages(first, large.len());
        let has_them = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        let flags = flags(middle);
        assert_eq!(flags.split_whitespace().any(|flag| flag == "hg"), has_them, "{flags}");
        assert!(large.iter().all(|byte| *byte == 0));
    }
}
