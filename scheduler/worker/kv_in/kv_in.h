// KvIn: the KV blocks of a decode-worker's sequences. They are reserved for a prompt, written by
// prefill instances, read by steps, and freed when no writer can reach them. Part of DecodeCore,
// which decides what to reserve and when a sequence ends.
//
// Writers. A prefill instance named in the reservation gets the blocks under a lease and renews it.
// It commits with the bytes that it wrote to each layer. The KV is complete when all writers' bytes
// sum to the prompt's and the first token has arrived. It fails when a writer's lease expires, when
// all were silent for a lease, or when a commit is inconsistent. Either gives one Outcome. Writers
// may arrive and commit in any order.
//
// Tables. A sequence's table covers a number of tokens and may be extended; a step in flight keeps
// the one that it was given. An extension for which no blocks are free is refused, and nothing has
// changed. A sequence whose KV is whole may be released and come back later: Resume takes other
// blocks for it, to which no writer was ever granted.
//
// Sharing. A sequence may be given the blocks of another one's prompt. Each has a reference to
// them, and neither writes to them; they are free when both were released.
//
// Groups. The KV of a sequence that was placed in the bound group that this instance leads comes in
// the group's layout, into blocks of every rank (ReserveForGroup). This instance's are an entry
// like others; the members keep theirs in ComingBlocks. The writers call the lead alone, and count
// the bytes that they read, so what they sum to is the same in every layout. When all has come, the
// group's batch takes the table (TakeTable).
//
// Quarantine. The writers of a sequence put under one grant. Blocks that are released while one of
// them may still put into them are not free before the grant is closed: the transport then promises
// that no put under it changes anything, however late its writer is (engine/transport/transport.h:
// Grants). A writer's message over gRPC is not enough, because its bytes may arrive later over
// another path; nor is any waiting time. With staging buffers a writer reaches no block, and the
// blocks wait only for running copies.
//
// Staging buffers (config.staging; scheduler/kv/staging_buffer_queue.h): a writer acquires one,
// fills it, tells it part by part, and each part is copied into the blocks before its slots are
// used again. It puts under a grant of its own, which is closed before another one gets the buffer.
//
// Extra blocks (Grow, Shrink; scheduler/kv/block_pool.h) are granted to writers as all others while
// they are there. When they go, the KV of sequences that nobody writes any more is moved out of
// them between two steps; the others are waited for.
//
// Time. `now` is DecodeCore's listening clock (scheduler/base/listening_clock.h): its value at an
// event, and the elapsed time for RunTimers. An event costs O(log sequences) plus the sequence's
// writers.
//
// Invariants, by number (CheckInvariants names them):
//   1. The blocks held in the pool are those of the tables, kept for KV that comes to this rank of
//   a
//      group, of the quarantine and of others; those shared, of several tables.
//   2. The blocks quarantined in the pool are those of the quarantine that no table has.
//   3. A sequence whose KV is coming has a time at which its silence ends it.
//   4. The parts' own: BlockPool, BlockQuarantine, StagingLoans.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/vocabulary/block_range.h"
#include "scheduler/worker/kv_in/block_quarantine.h"
#include "scheduler/worker/kv_in/coming_blocks.h"
#include "scheduler/worker/kv_in/kv_in_events.h"
#include "scheduler/worker/kv_in/staging_loans.h"

namespace skein::scheduler {

struct KvInConfig {
  HandoffShape shape;
  int64_t total_blocks = 0;         // own ones
  std::string memory;               // the transport's description of the KV regions, for grants
  TimeUs lease_us = 3 * kSecondUs;  // of a reservation, and of each grant and renewal
  StagingConfig staging;
};

class KvIn {
 public:
  // What the writers' commits brought besides the KV.
  struct Result {
    bool has_token = false;  // false when max_tokens is 0
    int32_t token = 0;
    std::string payload;          // the sampled token; opaque here
    std::string prompt_logprobs;  // of all chunks; opaque here
    std::optional<PrefillTimes> times;
  };
  struct Outcome {
    RequestId id;
    absl::Status status;  // OK: the KV is whole; otherwise the sequence ends with it
    Result result;
  };
  // Why a message about a sequence comes too late.
  struct Gone {
    absl::Status status;     // FAILED_PRECONDITION, CANCELLED or NOT_FOUND
    bool committed = false;  // its KV had been whole: a duplicate Renew or Commit is fine
  };
  struct Counts {
    int64_t reserved = 0;     // sequences to whose blocks nobody was granted
    int64_t granted = 0;      // whose KV is coming
    int64_t quarantined = 0;  // tables
  };

  // `emit` is called for each effect, inside the call that has it. `why_gone` tells of a sequence
  // that is not here, or whose KV failed.
  KvIn(KvInConfig config, std::function<Gone(RequestId, Epoch)> why_gone,
       std::function<void(KvInEffect)> emit);

  // Takes the blocks of spec's OpeningTokens. RESOURCE_EXHAUSTED: too few are free.
  // REQUIRES: !Has(spec->id).
  absl::Status Reserve(const SpecPtr& spec, Epoch epoch, const std::vector<Incarnation>& writers,
                       TimeUs now);
  // Such a process may be granted the blocks. REQUIRES: Has(id).
  bool IsNamed(RequestId id, Incarnation writer) const {
    return entries_.at(id).named.count(writer) > 0;
  }
  // Further writers may be granted the blocks. REQUIRES: Has(id).
  void AddWriters(RequestId id, const std::vector<Incarnation>& writers);
  // The table covers at least so many tokens from now on. RESOURCE_EXHAUSTED: it is as it was.
  // REQUIRES: Has(id).
  absl::Status Extend(RequestId id, int64_t tokens);
  bool Covers(RequestId id, int64_t tokens) const {
    return static_cast<int64_t>(entries_.at(id).blocks->size()) >= BlocksFor(tokens);
  }
  // Blocks for so many tokens of a sequence whose KV was whole and was released; a step writes them
  // anew. RESOURCE_EXHAUSTED: too few are free. REQUIRES: !Has(spec->id).
  absl::Status Resume(const SpecPtr& spec, Epoch epoch, int64_t tokens);
  // Blocks for the opening tokens of a sequence with the prompt of `from`: its first `shared`
  // blocks are from's, which none of the two writes any more; the others are new, and a step writes
  // them. RESOURCE_EXHAUSTED: too few are free. REQUIRES: from's KV is whole; `shared` are fewer
  // than the prompt's; !Has(spec->id).
  absl::Status Share(RequestId from, int64_t shared, const SpecPtr& spec, Epoch epoch);
  // The blocks that coming() keeps for it, in the layout of a bound group, whose other ranks keep
  // those of `others`. REQUIRES: coming() has them; !Has(spec->id).
  void ReserveForGroup(const SpecPtr& spec, Epoch epoch, const std::vector<Incarnation>& writers,
                       KvLayout layout, std::vector<TransferTarget> others, TimeUs now);
  // REQUIRES: Has(id).
  bool IsForGroup(RequestId id) const { return entries_.at(id).layout != config_.shape.layout; }
  // The caller has its blocks from here on. REQUIRES: it IsForGroup, its KV is whole.
  BlockTable TakeTable(RequestId id);
  bool Has(RequestId id) const { return entries_.count(id) > 0; }
  // REQUIRES: Has(id).
  const BlockTable& TableOf(RequestId id) const { return entries_.at(id).blocks; }
  // The sequence has ended and no step reads its blocks. Unknown sequences are fine.
  void Release(RequestId id, TimeUs now);

  // The writers' calls, each answered by one effect, and the ends of copies.
  void On(const OpenTransferCalled& event, TimeUs now);
  void On(const RenewCalled& event, TimeUs now);
  void On(const CommitCalled& event, TimeUs now);
  void On(const AcquireStagingBufferCalled& event, TimeUs now);
  void On(const TakePartCalled& event, TimeUs now);
  void On(const ReleaseStagingBufferCalled& event, TimeUs now);
  void On(const PartCopied& event, TimeUs now);
  void On(const GrantClosed& event, TimeUs now);
  // The writer aborted. Its sequence has not ended by that.
  void WriterStopped(RequestId id, Epoch epoch, InstanceId writer, TimeUs now);
  void RunTimers(TimeUs now);
  TimeUs NextDeadline() const;

  // Of sequences whose KV became whole, or failed, since the last call, in order.
  std::vector<Outcome> TakeOutcomes() { return std::exchange(outcomes_, {}); }
  // Blocks became free, came or went since the last call.
  bool TakeFreed() {
    const bool quarantined_freed = quarantine_.TakeFreed();
    return std::exchange(freed_, false) || quarantined_freed;
  }

  // Extra blocks come, and go: kv_in_extra.cc. REQUIRES: as BlockPool.
  void Grow(BlockRange extra) {
    pool_.Grow(extra);
    freed_ = true;
  }
  void Shrink() {
    pool_.Shrink();
    freed_ = true;  // so that the new number is reported at once
  }
  // What keeps blocks that go.
  struct Going {
    std::vector<RequestId> coming;  // sequences whose KV comes into them
    std::vector<RequestId> stuck;   // whose KV is whole, but may still be written to in them
    int64_t movable = 0;            // blocks that MoveGoing moves
    int64_t awaited = 0;            // the others: of coming and stuck ones, and in quarantine
  };
  Going LookAtGoing() const;
  // Own blocks take the place of the movable ones in all tables; their KV is to be copied before
  // the next step. REQUIRES: no step is in flight, so many own ones are free.
  std::vector<BlockMove> MoveGoing();
  int64_t own_blocks() const { return pool_.own(); }

  int64_t BlocksFor(int64_t tokens) const { return BlocksOf(config_.shape, tokens); }
  BlockCounts blocks() const { return pool_.Counts(); }
  // For the batch of a bound group, which takes blocks beside this, and never shares them.
  BlockPool* pool() { return &pool_; }
  ComingBlocks* coming() { return &coming_; }
  Counts CountSequences() const;
  // Null: this instance has none.
  const StagingBufferQueue* staging_buffers() const {
    return loans_.has_value() ? &loans_->queue() : nullptr;
  }
  // Of a sequence: "reserved", "granted", "whole", "failed". REQUIRES: Has(id).
  const char* StateOf(RequestId id) const;
  // `others`: blocks that others hold of pool().
  absl::Status CheckInvariants(int64_t others = 0) const;

 private:
  enum class WriterPhase { kWriting, kTellingPart, kCommitted };
  struct Writer {
    WriterPhase phase = WriterPhase::kWriting;
    TimeUs lease_end_us = 0;
    uint64_t parts = 0;  // staging: copied, or being copied

    bool Writes() const { return phase != WriterPhase::kCommitted; }
  };
  using Writers = std::map<InstanceId, Writer>;

  enum class Phase { kReserved, kGranted, kWhole, kFailed };
  struct Entry {
    SpecPtr spec;
    Epoch epoch;
    Phase phase = Phase::kReserved;
    BlockTable blocks;
    KvLayout layout;                     // of the blocks
    std::vector<TransferTarget> others;  // of a group's ranks from 1
    std::set<Incarnation> named;         // may be granted the blocks
    GrantId grant;                       // 0: none yet, or closed; staging: none
    Writers writers;
    bool aborted = false;                // a writer did: what it has put may still come
    TimeUs lease_end_us = 0;             // since the reservation, or any writer's last message
    int64_t copies = 0;                  // staging: under way
    std::vector<int64_t> bytes_written;  // by layer, of the writers that committed
    Result result;

    bool Coming() const { return phase == Phase::kReserved || phase == Phase::kGranted; }
  };

  using Attempt = BlockQuarantine::Attempt;
  using StagedWriter = StagingLoans::Writer;
  // A part on its way out of its buffer.
  struct Copy {
    CallId call;
    StagedWriter writer;
  };

  Entry* FindComing(RequestId id, Epoch epoch);
  Gone WhyGone(RequestId id, Epoch epoch) const;
  void SetPhase(Entry& entry, Phase phase);
  absl::Status ExtendTo(Entry& entry, int64_t blocks);
  int64_t PromptBlocks(const Entry& entry) const;
  BlockCounts CountBlocks() const;  // anew, from tables and quarantines
  OpenTransferReply Grant(const OpenTransferRequest& request, TimeUs now);
  absl::Status Renew(const RenewRequest& request, TimeUs now);
  absl::Status Commit(const CommitRequest& request, TimeUs now);
  absl::Status TakeCommit(Entry& entry, const CommitRequest& request) const;
  absl::Status AddBytes(Entry& entry, const std::vector<int64_t>& bytes) const;
  static void AddTimes(Result& result, const PrefillTimes& times);
  std::set<BlockId> GoingThatMayBeWritten() const;
  bool IsMovable(const Entry& entry, const std::set<BlockId>& written) const;
  bool IsWhole(const Entry& entry) const;  // all bytes and the token are here
  void Finish(Entry& entry, absl::Status status, TimeUs now);
  bool MayBeWritten(const Entry& entry) const;
  void Arm(const Entry& entry);
  GrantId NewGrant() { return {next_grant_++}; }
  void CloseGrantOf(const Entry& entry);

  // Staging: kv_in_staging.cc.
  absl::StatusOr<Writer*> FindStaged(const StagedWriter& staged);
  absl::Status MayTakePart(const TakePartRequest& request, const Entry& entry) const;
  void EndCopy(RequestId id, Epoch epoch);
  void EndLoansOf(const Entry& entry, TimeUs now);  // nobody writes to it any more
  void EndLoanOf(const StagedWriter& writer, TimeUs now);

  const KvInConfig config_;
  const std::function<Gone(RequestId, Epoch)> why_gone_;
  const std::function<void(KvInEffect)> emit_;
  uint64_t next_grant_ = 1;
  BlockPool pool_;
  BlockQuarantine quarantine_;
  ComingBlocks coming_;
  std::map<RequestId, Entry> entries_;
  TimerQueue<RequestId> leases_;
  std::optional<StagingLoans> loans_;  // staging
  std::map<uint64_t, Copy> copies_;    // staging: under way
  uint64_t next_copy_ = 1;
  Counts counts_;
  std::vector<Outcome> outcomes_;
  bool freed_ = false;
};

}  // namespace skein::scheduler
