// The Transport over UCX (libucp): shared memory within a host, TCP or RDMA between hosts.
//
// How bytes travel. A region that the transport allocated (Register with null) is System V or POSIX
// shared memory where UCX_TLS has shm: a peer on the host maps it, and a put is one memcpy without
// the target's CPU. So KV pools are allocated by the transport. Everything else (tcp, a region on
// the caller's own memory) goes by UCX active messages of at most 60 KiB, which the target's Poll
// checks against its regions and applies; a put is OK when the target answered the flush that
// follows it. Scattered pieces of a put share messages.
//
// What is known of UCX 1.13 (Debian 12), tried on this code or read in UCX's:
//  - ucp_put and ucp_get are emulated over tcp, and the emulation ends the TARGET's process
//  (ucs_fatal) when the source dies
//    before an acknowledgement was sent (ucp/rma/rma_sw.c). They are therefore not used.
//  - Death of a peer: tcp reports a closed socket at once. Shared memory has peer-failure handling
//  only with
//    UCX_{POSIX,SYSV}_ERROR_HANDLING=y, which this transport turns on; a keepalive (every 200 ms)
//    then sees that the process is gone. A put into mapped memory succeeds against a dead or
//    stopped process until then: OK means that the bytes are in the region, not that somebody is
//    left to read them. That word comes from the commit over gRPC.
//  - A peer that died before the first transfer to it shows over shared memory in that transfer's
//  timeout only.
//  - A stopped peer shows in timeouts only.
//  - Mapped segments vanish with the last process that maps them, SIGKILL included.
//  - ucp_ep_query knows no lanes before 1.14; Inspect reads ucp_ep_print_info. "mapped+sysv+posix":
//  puts are memcpy.
//  - Do not fork after creating one (UCX does not support it; fork and exec at once is fine). Under
//  TSan set
//    UCX_MEM_MMAP_HOOK_MODE=none.
//  - UCX_TCP_SNDBUF and UCX_TCP_RCVBUF, if set, replace this transport's own 4 MiB, and
//    UCX_TCP_MAX_IOV its 16 (with fewer, scattered puts are split and slower).
//  - Memory of a device: see MakeUcxTransport.
//  - All members need the same UCX_TLS (or UcxOptions::tls). UCX trusts worker addresses: a forged
//  one may crash the reader.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/transport/transport.h"
#include "engine/transport/ucx_options.h"

namespace skein::engine {

// UNAVAILABLE or INVALID_ARGUMENT if UCX cannot start with these options.
//
// With `copies`, Register also takes memory of the device behind it. UCX never sees that memory:
// bytes go through page-locked slots of the host on the side that has the device, so this works
// with any UCX, over any of its wires, and with several processes on one device. What is put must
// have been computed when Post is called (the copy is not ordered with the device's own stream);
// OK for a put means that the bytes have arrived in the device's memory.
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(
    const UcxOptions& options, std::shared_ptr<CopyStream> copies = nullptr);

}  // namespace skein::engine
