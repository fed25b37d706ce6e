// The Transport over UCX (libucp) between hosts, and over shared memory of our own within one.
//
// How bytes travel. Where UCX_TLS has shm, processes of one host and user that see one another in
// /proc do without UCX: a region that the transport allocated (Register with null) is shared memory
// (engine/host/shared_region.h) that such a peer maps, and a put is one memcpy without the target's
// CPU. So KV pools are allocated by the transport. Everything else (another host, a region on the
// caller's own memory) goes by messages of at most 60 KiB, which the target's Poll checks against
// its regions and grants, and applies; a put is OK when the target answered the flush that follows
// it. They go through a ring for each pair of processes of a host (engine/host/host_wire.h), over
// tcp (engine/net/tcp_wire.h), or, where both sides have a fabric such as InfiniBand or no tcp, as
// UCX's active messages. Scattered pieces of a put share messages. In UCX, memory that it can write
// truly remotely is put by RMA instead (ucx_rma.h; PeerInfo::transport "rma+rc_mlx5"): chosen at
// Connect, for each region.
//
// Grants (transport.h). Writers by themselves are those that map: of this host, so their end is
// seen; and those that put by RMA (ucx_rma.h says how their end is seen). A stopped one keeps the
// blocks of its handoffs in quarantine until it goes on or is killed.
//
// Death of a peer. One of this host is noticed at once, reaped or not: its process is watched. Over
// tcp a closed socket is noticed at once. A put into mapped memory succeeds against a dead or
// stopped process until then: OK means that the bytes are in the region, not that a process is left
// to read them. That word comes from the commit over gRPC. A stopped peer shows in timeouts only. A
// process that is killed, at any moment, takes nothing with it but what came and went through its
// own rings and sockets.
//
// What is known of UCX 1.13 (Debian 12), tried on this code or read in UCX's:
//  - Its tcp is not used. The first message between two processes makes them shake hands; a source
//    that dies, or closes the connection, before it has the answer ends the TARGET's process by an
//    assertion of ucp_request_send_state_ff, which UCX dropped later (its pull request 8175). And
//    ucp_put and ucp_get are emulated over it; the emulation ends the TARGET (ucs_fatal) when the
//    source dies before an acknowledgement was sent (ucp/rma/rma_sw.c).
//  - Its shared memory has one queue for all senders to a receiver, in which a sender claims a
//    place, then writes it: one that is killed in between stops the queue for good. So it is used
//    only between processes of one host that do not see one another (other users, other pid
//    namespaces), if UCX_TLS has no tcp. It needs UCX_{POSIX,SYSV}_ERROR_HANDLING=y, which is
//    turned on here; a keepalive (every 200 ms) then sees that a process is gone.
//  - ucp_ep_query knows no lanes before 1.14; Inspect reads ucp_ep_print_info. "mapped+ring" and
//    "tcp" are not UCX's.
//  - Do not fork after creating one (UCX does not support it; fork and exec at once is fine). Under
//    TSan set UCX_MEM_MMAP_HOOK_MODE=none.
//  - UCX_TCP_SNDBUF and UCX_TCP_RCVBUF, if set, replace the sockets' 4 MiB.
//  - Memory of a device: see MakeUcxTransport.
//  - All members need the same UCX_TLS (or UcxOptions::tls). UCX trusts worker addresses: a forged
//    one may crash the reader.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/device/peer_opener.h"
#include "engine/transport/transport.h"
#include "engine/ucx/ucx_options.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

// UNAVAILABLE or INVALID_ARGUMENT if UCX cannot start with these options. `plane`: what UCX carries
// goes by this one, which others of this process may share (engine/ucx/ucx_plane.h); null: by one
// of its own.
//
// With `copies`, Register also takes memory of the device behind it. UCX never sees that memory:
// bytes go through page-locked slots of the host on the side that has the device ("host-staged"),
// so this works with any UCX, over any of its wires, and with several processes on one device. What
// is put must have been computed when Post is called (the copy is not ordered with the device's own
// stream); OK for a put means that the bytes have arrived in the device's memory.
//
// With `opener`, too, memory of a device is described so that others of this node open it, and
// theirs is opened where that can be. Between such regions, and from and to the host's memory here,
// bytes are copied by the device of the process that posts ("direct"; transport: the opener's
// name), also into a process that stands still, or on the same device. What cannot be opened is
// staged: another node, another user, UCX_TLS without shm, a peer without an opener, GPUs without
// peer access.
//  - A transfer has ended when its copies have, also one that was given up: afterwards nothing
//    changes the target's memory. So the rule for leases (transport.h: Memory) is the same, and a
//    target need not even poll.
//  - The memory stays open here until Disconnect, until the peer breaks (a dead one is found by its
//    process), or as long as this lives. Its owner does not free it while a peer may know the
//    description.
//  - A device that fails to copy breaks the peer; one that is hung, or whose error is sticky, ends
//    the process (engine/device/copy_stream.h, engine/cuda/device/cuda_check.h).
absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(
    const UcxOptions& options, std::shared_ptr<CopyStream> copies = nullptr,
    std::shared_ptr<PeerOpener> opener = nullptr, std::shared_ptr<UcxPlane> plane = nullptr);

}  // namespace skein::engine
