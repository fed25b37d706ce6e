// Maps a file read-only in huge pages where the kernel can.
//
// Decode reads every weight once a token, so it runs at the speed of memory; through 4 KiB pages
// that is a quarter less here than through 2 MiB pages. A copy into anonymous huge pages would cost
// each process of a machine its own; instead the page cache itself is asked to hold the file in
// huge folios, which all processes share (Linux, file systems with large folios: xfs, ext4 since
// 6.16). Elsewhere the mapping is an ordinary one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::engine {

// The first `size` > 0 bytes of the file, aligned to 2 MiB, or MAP_FAILED (errno tells). To be
// unmapped with munmap(address, size).
//
// A large file is read into memory by this call. If it was cached in small pages and this kernel
// and file system are seen to make huge ones, its cache is dropped and read again, once: later
// mappings find it huge. Pages that another process has mapped stay as they are.
void* MapInHugePages(int fd, size_t size);

// Bytes of the mapping at `address` that are mapped by huge pages of the page cache.
size_t HugeBytesMapped(const void* address);

}  // namespace skein::engine
