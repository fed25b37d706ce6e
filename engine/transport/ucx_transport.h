// The Transport over UCX (libucp): shared memory within a host, TCP or RDMA between hosts.
//
// What is known of UCX 1.13 (Debian 12), measured or tried on this code:
//  - Shared memory: a region that the transport allocated (Register with null) is System V or POSIX
//  shared memory; the
//    peer maps it and a put is one memcpy, without the target's CPU. A region on the caller's own
//    memory is reached by emulation instead: 8 KiB messages that the target's Poll copies, at
//    little more than half the speed. So KV pools are allocated by the transport. Their segments
//    vanish with the last process that maps them, SIGKILL included.
//  - Death of a peer: tcp reports a closed socket at once. Shared memory supports peer-failure
//  handling only with
//    UCX_{POSIX,SYSV}_ERROR_HANDLING=y, which this transport turns on; then a keepalive (every 200
//    ms) sees that the process is gone. An operation that needs no target (a put into mapped
//    memory) succeeds against a dead or stopped process until then: OK means that the bytes are in
//    the region, not that somebody is left to read them. That word comes from the commit over gRPC.
//  - A stopped (not dead) peer shows only in deadlines.
//  - TransportName: UCX 1.13 has no query for lanes (ucp_ep_query's came with 1.14); Inspect parses
//  ucp_ep_print_info.
//  - Do not fork after creating one (UCX does not support it). Under TSan set
//  UCX_MEM_MMAP_HOOK_MODE=none.
//  - Each member needs the same view of the others: UCX_TLS (or UcxOptions::tls) should agree
//  within a cluster.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/transport/transport.h"

namespace skein::engine {

struct UcxOptions {
  std::string tls;  // as UCX_TLS, such as "shm" or "self,shm,tcp"; "" leaves it to the environment
  std::chrono::milliseconds keepalive{200};
};

// UNAVAILABLE or INVALID_ARGUMENT if UCX cannot start with these options.
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& options);

}  // namespace skein::engine
