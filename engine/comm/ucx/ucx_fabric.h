// The Fabric of processes: shared memory within a host, tcp or UCX between hosts.
//
// How bytes travel. Messages of at most 64 KiB, taken from the sender's buffer when there is room
// for them and copied by the receiver into its own. Between processes of one host and user that see
// one another in /proc they lie in shared memory of our own, a ring for each ordered pair
// (engine/host/host_wire.h): two copies. Else they go over tcp sockets (engine/net/tcp_wire.h), or,
// where both sides have a fabric such as InfiniBand, as UCX's active messages. None holds a
// caller's buffer (UCX's packing goes through us), so a call that fails returns without waiting for
// a stopped peer. UCX's own rendezvous would save a copy; it is not used, because a receive under
// way cannot be taken back when a peer dies.
//
// Threads. All groups under one lock; each waiting call moves everybody's messages. Of the calls
// that sleep, one sleeps on the wires' events, the others on condition variables. A thread of the
// fabric sends what is left over when no call waits (the word of an Abort). UCX itself is a
// process's own, which handoffs use too (engine/ucx/ucx_plane.h): what they take of these messages
// is kept. They may cut a process off there (engine/transport/ucx/ucx_rma.h): for groups over UCX
// it has died then, and later groups reach it again.
//
// Death of a peer. One of this host and pid namespace is noticed at once, reaped or not: its
// process is watched; over tcp its sockets close at once. Otherwise UCX notices: over its shared
// memory within two keepalives (0.4 s) if the process is reaped. A stopped process
// is noticed by the deadline only. An address that failed once is dead as long as a group has it;
// then it is forgotten. A process that is killed, at any moment, takes nothing with it but what
// came and went through its own rings and sockets: groups without it go on, and the survivors' new
// groups work.
//
// Why not UCX's shared memory: all senders to a receiver share a queue there (1.13), in which a
// sender claims a place, then writes it. If it is killed in between, that place is never filled and
// the receiver hears nothing over shared memory any more until its process starts anew. Processes
// of one host that do not see one another (other users, other pid namespaces) have that limit where
// UCX_TLS has shm and UCX can reach them so; without shm they use tcp.
//
// All members need the same UCX_TLS (or UcxOptions::tls). Do not fork after making one.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/ucx/ucx_options.h"
#include "engine/ucx/ucx_plane.h"

namespace skein::engine {

// UNAVAILABLE or INVALID_ARGUMENT if UCX cannot start with these options. Null `plane`: one of its
// own.
absl::StatusOr<std::unique_ptr<Fabric>> MakeUcxFabric(const UcxOptions& options,
                                                      std::shared_ptr<UcxPlane> plane = nullptr);

}  // namespace skein::engine
