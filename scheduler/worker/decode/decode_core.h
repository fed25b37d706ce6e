// DecodeCore: every decision of a decode-worker. One thread owns it.
//
// Life of a request here: announced (no blocks) -> granted (the blocks of its prompt taken, leases
// running, prefill instances write) -> running (committed: in the batch) -> ended. Its router may
// attach in each of these phases, also before the request has blocks. Tokens sampled before that
// are kept for the router until the attach lease ends.
//
// A running sequence takes further blocks as its tokens come. When none is free, another one may be
// preempted: it gives all its blocks back, keeps its output, and resumes later. Its tokens are then
// computed again in the batch, as a prompt's. It samples what it would have sampled, because a
// sampled token depends only on the seed, its index and the tokens before it. Which sequence is
// preempted, and why none starves: scheduler/worker/decode/block_order.h.
//
// Sharing. The choices of an answer with n > 1 are requests of their own: each has its seed,
// stream, epochs, end and preemption, and may be cancelled or planned anew without the others. The
// first one is prefilled. The others are announced after it with `prompt_of`, and have no writer.
// When the first one's KV is whole, they enter with it: their tables begin with its blocks, up to
// the one with the prompt's last token. From there on each has blocks of its own, and its first
// step computes those last tokens of the prompt again, at most one block of them, in the mixed
// batch. So nobody writes to a shared block, no engine has to copy one, and each choice samples its
// own first token. A preempted sequence gives its references up and later computes all its tokens
// again.
// A request that cannot share, because there is no room, or the first one has ended or runs
// already, ends with UNAVAILABLE; then it is planned as one without `prompt_of`.
//
// An announcement names the processes that may write a request's KV. It takes no blocks; the first
// OpenTransfer allocates the blocks of the prompt and of the first token after it, or none, and
// leaves some free for the growth of the sequences here. Announcements and OpenTransfers
// arrive on different connections. An OpenTransfer that arrives first waits for its announcement,
// at most open_wait_us. (Sending the announcement inside OpenTransfer would send each prompt
// twice.) An announced request is forgotten when it is cancelled, withdrawn or expired.
//
// Steps. While one runs, the next one is launched behind it (steps/step_loop.h), as if all went on:
// each sequence runs the token that the first one samples, unless that is its last by max_tokens.
// One that ended with the first, by a stop token, a cancel or a failure, has its token of the
// second dropped, and keeps its blocks until that has ended. When a block is wanted and none is
// free, no step is launched ahead: a preempted sequence must be in none.
//
// Formations. While this instance is bound it runs the steps of its group, own ones among them, in
// the order of the feed (group/bound_group.h). At the lead, sequences that were preempted run in
// the group, which has more room for them, and so do requests that the group computes from their
// first token on (group_requests.h). With a soft bind so does what any rank runs alone when it is
// bound; its stream stays where it is. They come back, to be recomputed here, when it ends; one
// whose tokens never fit this instance's pool ends then. How own sequences fare in a bind is part
// of its order: they may have to end first, join the group, or pause (bound_group.h).
//
// Drain. Nothing new is taken, and routers are asked one by one to go on with their requests
// elsewhere (stream_moves.h). Streams that are not moved go on. A drain with an end, SIGTERM's,
// ends what is left then.
//
// How KV arrives, from one or several prefill instances: scheduler/worker/kv_in/kv_in.h. Leases
// measure the silence of others while this process listens (scheduler/base/listening_clock.h): they
// never end early, and are extended by this process's own pauses.
//
// An event costs O(log requests) plus the size of its step; a report costs as much as it lists.
//
// Invariants, by number (CheckInvariants names them):
//   1. Blocks held in the pool are exactly those of the requests that have a table (KvIn).
//   2. Blocks granted to writers are freed only when each has committed or their grant is closed;
//      staging: after each copy into them (KvIn).
//   3. A sequence in a step in flight keeps its blocks.
//   4. Token indices on a stream are 0, 1, 2 … without gap; each stream ends exactly once.
//   5. For each request the epoch only grows; every accepted (id, epoch) ends exactly once, in a
//      report's `ended`: an answer that is whole when a router has attached, or its lease is over.
//   6. The batch's own.
//   7. A running sequence has blocks for all its tokens, or wants one and is in no step until it
//      has it; a preempted one has none.
//   8. StreamGaps has exactly the attached streams that have had a token.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/decode/decode_events.h"
#include "scheduler/worker/group/group_batch.h"
#include "scheduler/worker/group/own_pause.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/steps/engine_watch.h"
#include "scheduler/worker/worker_snapshot.h"

namespace skein::scheduler {

struct GroupConfig {
  FeedLimits limits;
  TimeUs step_max_us = 60 * kSecondUs;                         // of a step of the group
  int64_t shift_tokens = std::numeric_limits<int64_t>::max();  // BoundGroupConfig's
  double own_share = 0;                                        // likewise
  TimeUs own_pause_us = kOwnPauseUs;                           // likewise
  // SharingEngine::CanShare of this instance's engine.
  absl::Status can_share = absl::UnimplementedError("engine: it cannot share its weights");
  TimeUs extra_wait_us = 2 * kSecondUs;  // of ExtraBlocks
};

struct DecodeConfig {
  MembershipConfig membership;
  BatchLimits batch;
  std::string memory;               // the transport's description of the KV regions, for grants
  int64_t max_requests = 256;       // with blocks, at a time
  int64_t max_sequence_tokens = 0;  // prompt + max_tokens; the engine's max_positions (0: no limit)
  TimeUs lease_us = 3 * kSecondUs;  // of each grant and renewal
  // How long OpenTransfer waits for the announcement of its request; less than its caller waits.
  TimeUs open_wait_us = 300 * kMillisecondUs;
  // Of an announced request whose spec names no deadline.
  TimeUs request_deadline_us = 600 * kSecondUs;
  // Time for the router to attach. A request without a router is planned again while its router
  // still reports. Longer than the backlog of a router in a burst.
  TimeUs attach_lease_us = 60 * kSecondUs;
  EngineWatchConfig engine;
  // Launches a step behind the one that runs. Without it the engine waits between two steps.
  bool launch_ahead = true;
  StagingConfig staging;
  GroupConfig group;
};

struct DecodeSnapshot : WorkerSnapshot {
  int64_t announced = 0;  // without blocks
  int64_t granted = 0;    // KV on its way
  int64_t running = 0;
  int64_t preempted = 0;               // until there is room for them
  int64_t bound = 0;                   // they run in the bound group, and have their streams here
  int64_t group_blocks = 0;            // held by the batch of the bound group
  BatchKv bound_kv;                    // of that batch, at this rank
  int64_t quarantined = 0;             // cancelled, blocks not yet safe
  int64_t unclaimed = 0;               // ended before a router attached
  int64_t buffers = 0;                 // staging buffers; 0: one-sided
  int64_t staging_buffers_held = 0;    // by requests
  int64_t staging_buffer_waiting = 0;  // writers that wait for one
  uint64_t output_tokens = 0;          // sampled here since the start
  uint64_t finished = 0;               // with stop or length
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;  // by resumed sequences
  uint64_t asked_to_move = 0;      // asks of routers to move a stream, in drains
};

class DecodeCore {
 public:
  explicit DecodeCore(const DecodeConfig& config);
  ~DecodeCore();

  // The shell starts by handling a Tick. Total: any event in any state is safe.
  std::vector<DecodeEffect> Handle(const DecodeEvent& event, TimeUs now);
  // When the next Tick is due, kNever if none is.
  TimeUs NextDeadline() const;
  // Of a Cancel or an Abort: INVALID_ARGUMENT if nobody can have issued the epoch. Handle ignores
  // such a one.
  absl::Status CheckEpoch(Epoch epoch) const;
  absl::Status CheckInvariants() const;
  DecodeSnapshot Snapshot(TimeUs now) const;
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein::scheduler
