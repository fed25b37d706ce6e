// The step feed: what the lead of a bound group and its members tell each other about steps
// (Flying Serving, section 4). A plan names what changed in the batch that all ranks hold alike
// (GroupBatch): some tens of bytes. Block tables and sampled tokens never travel: each rank has
// blocks of its own, and samples the same bits.
//
// The life of a step, between the lead and each member:
//
//   lead -> FeedPlan    the next step; members check it and take their blocks, while the step
//                       before it may still run
//   member -> FeedReady, or FeedRefusal: it is short, or does not know a request
//   lead -> FeedGo      all are ready: the step runs at every rank, after the one before it
//        or FeedCancel  a member refused: the step runs at no rank
//   member -> FeedDone  the step ended here; the blocks that this rank has free, the tokens that
//   its
//                       own batch could run next, and a digest of what it sampled
//
// Before a plan may add a sequence, the lead offers it to every member (FeedOffer: once, with its
// prompt, in parts); FeedWithdraw takes back an offer that no plan has added.
//
// A member may hand a sequence of its own to the group, to be computed anew: it sends the lead such
// an offer, without KV, and the lead offers it to all, that member too. Its stream stays at the
// member, which samples its tokens in the group's steps as every rank does. FeedWithdraw from the
// member says that the sequence has ended.
//
// A sequence may come with the KV of its prompt, from prefill instances: before they are told where
// to write, the lead has every member keep blocks for it (FeedReserve, answered by FeedReserved).
// The offer then says that they hold the prompt's KV; FeedWithdraw gives them up.
//
// Steps are numbered 1, 2, … in the order in which every rank runs them: no two ranks ever wait for
// each other. Messages of another epoch are ignored. FeedEnd, from either side, ends the epoch.
//
// Encoding: one byte for the kind, then varints (little endian, 7 bits a byte); ids of requests and
// digests have 8 bytes. It is the same binary on both sides, on one node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/worker/steps/step_mode.h"

namespace skein::scheduler {

// A sequence enters the batch. Every rank has been offered it (GroupBatch::Offer).
struct FeedAdded {
  uint32_t handle = 0;  // larger than those before; the batch is in the order of handles
  RequestId id;
  Epoch epoch;  // of the request
  bool operator==(const FeedAdded&) const = default;
};

// A sequence runs another number of tokens than it would by itself.
struct FeedSlice {
  uint32_t handle = 0;
  int64_t tokens = 0;  // 0: it does not run
  bool operator==(const FeedSlice&) const = default;
};

struct FeedPlan {
  uint64_t epoch = 0;  // of the formation
  uint64_t step = 0;
  StepMode mode;
  int64_t own_tokens = 0;  // mode own: 0: no rank runs anything
  // That the group will take soon, or waits for, at each rank: no new own sequence takes them.
  int64_t wanted_blocks = 0;
  std::vector<uint32_t> removed;    // they have ended
  std::vector<uint32_t> preempted;  // they stay, without KV
  std::vector<FeedAdded> added;
  std::vector<FeedSlice> slices;
  bool operator==(const FeedPlan&) const = default;
};
struct FeedReady {
  uint64_t epoch = 0;
  uint64_t step = 0;
  bool operator==(const FeedReady&) const = default;
};
struct FeedRefusal {
  uint64_t epoch = 0;
  uint64_t step = 0;
  int64_t free_blocks = 0;  // at the member
  absl::Status why;         // RESOURCE_EXHAUSTED: it is short of blocks
  bool operator==(const FeedRefusal&) const = default;
};
struct FeedGo {
  uint64_t epoch = 0;
  uint64_t step = 0;
  bool operator==(const FeedGo&) const = default;
};
struct FeedCancel {
  uint64_t epoch = 0;
  uint64_t step = 0;
  bool operator==(const FeedCancel&) const = default;
};
struct FeedDone {
  uint64_t epoch = 0;
  uint64_t step = 0;
  int64_t free_blocks = 0;
  uint64_t counted = 0;    // the latest step whose blocks are no longer among them
  int64_t own_tokens = 0;  // that a step of this rank's own batch would run now
  uint64_t digest = 0;     // of the tokens that it sampled; own steps: 0
  bool own_waits = false;  // own sequences of this rank wait for blocks
  bool operator==(const FeedDone&) const = default;
};
struct FeedEnd {
  uint64_t epoch = 0;
  absl::Status why;
  bool operator==(const FeedEnd&) const = default;
};

// Keep blocks for the KV of so many tokens, in the group's layout; answered by one FeedReserved.
struct FeedReserve {
  uint64_t epoch = 0;
  uint64_t number = 0;  // of this reservation
  RequestId id;
  Epoch request_epoch;
  int64_t tokens = 0;
  bool operator==(const FeedReserve&) const = default;
};
struct FeedReserved {
  uint64_t epoch = 0;
  uint64_t number = 0;
  RequestId id;
  Epoch request_epoch;
  absl::Status why;  // not OK: nothing is kept; RESOURCE_EXHAUSTED: there is no room
  std::vector<BlockId> blocks;
  std::string memory;  // as TransferTarget
  bool operator==(const FeedReserved&) const = default;

  static constexpr size_t kBlocksMax = 24 << 10;
  static constexpr size_t kMemoryMax = 128 << 10;  // bytes
};

// A sequence for plans to add: what a rank has to know to run it. Its tokens, prompt
// and then output, come in parts, in order; the one with the last token completes the offer. From a
// member: a sequence that it hands to the group.
struct FeedOffer {
  uint64_t epoch = 0;
  RequestId id;
  Epoch request_epoch;
  int64_t prompt_tokens = 0;
  int64_t sent_tokens = 0;  // of these, the last so many are of the answer (RequestSpec)
  int64_t output_tokens = 0;
  int64_t max_tokens = 0;  // of the output
  int64_t min_tokens = 0;  // likewise
  int64_t kv_tokens = 0;   // whose KV is in the blocks that were reserved for it; 0: none were
  // As RequestSpec's; in the first part only.
  std::string sampling;
  std::vector<int32_t> stop_token_ids;
  int64_t first = 0;  // token of `tokens`
  std::vector<int32_t> tokens;
  int32_t priority = 0;  // RequestSpec's
  int64_t age_us = 0;    // from a member: since the request arrived there
  bool operator==(const FeedOffer&) const = default;

  static constexpr size_t kTokensMax = 16 << 10;     // of a part
  static constexpr size_t kSamplingMax = 128 << 10;  // bytes
};
// From the lead: the offer is taken back. From a member: what it handed to the group has ended.
struct FeedWithdraw {
  uint64_t epoch = 0;
  RequestId id;
  Epoch request_epoch;
  bool operator==(const FeedWithdraw&) const = default;
};

// From a member, between steps: its own batch has something to run again.
struct FeedOwn {
  uint64_t epoch = 0;
  int64_t own_tokens = 0;
  bool operator==(const FeedOwn&) const = default;
};

using FeedMessage =
    std::variant<FeedPlan, FeedReady, FeedRefusal, FeedGo, FeedCancel, FeedDone, FeedEnd, FeedOffer,
                 FeedWithdraw, FeedOwn, FeedReserve, FeedReserved>;

std::string Encode(const FeedMessage& message);
// INVALID_ARGUMENT names the field that is cut off or impossible.
absl::StatusOr<FeedMessage> DecodeFeed(std::span<const std::byte> bytes);

}  // namespace skein::scheduler
