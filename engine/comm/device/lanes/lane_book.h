// LaneBook: one process's lanes to one other process, and which ring uses which. Internal to
// engine/comm.
//
// Lanes are made once and kept. A ring takes one for each pair of its members, and has it alone
// until its end: NCCL needs the calls on a communicator in one order at both ends, and the calls of
// one ring are in one order. So rings that share a pair at the same time have different lanes of
// it, and nothing orders their calls.
//
// Which ring takes which lane. The process with the lower address is the lead of the pair, the
// other one the follower. When a ring first needs the pair, the follower sends an offer: the rings
// with the lead that it still has open, and for each lane how many messages it sent and received.
// The lead grants a lane that no open ring of either end has, and that carried the same messages at
// both ends. It makes a new lane only where there is none: kLanesAtFirst at first, so that the
// rings of one step (its pieces, its moves) find theirs; later one, when more rings are open at
// once (a pair of one tensor group has a third one), or after a failure.
//
// How many lanes are enough. Offers of different rings arrive in any order, and each tells of all
// lanes and rings of the follower. The lead judges by the latest offer that it has, whichever ring
// sent it. So it cannot grant a lane that a ring had when that offer was made, nor one that it made
// beside another ring's and that the follower may not know yet: with n rings open at once, at
// either end, at most n - 1 of the former and kLanesAtFirst - 1 of the latter. kRingsAtOnce rings
// of a pair always find a lane.
//
// If a ring ends while its lane moves messages, that end destroys the lane. If the two ends counted
// different numbers of messages, both destroy it (`drops`). A lane that is made in its place has a
// higher generation.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/device/lanes/lane.h"

namespace skein::engine {

constexpr int kRingsAtOnce = 6;   // of a pair: two steps' pieces, tensor groups and moves
constexpr int kLanesAtFirst = 2;  // made when the pair is first used
constexpr int kLanesMax = kRingsAtOnce + kLanesAtFirst - 1;  // of a pair, see above

// From the follower to the lead, as bytes.
struct LaneOffer {
  struct State {
    uint64_t generation = 0;  // of the latest lane; 0: there was none
    uint64_t sent = 0;        // messages
    uint64_t received = 0;
    uint32_t there = 0;   // 1: it is not broken off
    uint32_t leased = 0;  // 1: to a ring that is open
  };
  uint64_t book = 0;        // of the follower: another number, another LaneBook
  uint64_t number = 0;      // of this offer's ring, from 1
  uint64_t open = 0;        // bit i: ring number - 1 - i is open
  uint64_t older_open = 0;  // 1: a ring before those is
  std::array<State, kLanesMax> lanes;
};

// From the lead to the follower, as bytes.
struct LaneGrant {
  uint32_t lane = kLanesMax;  // kLanesMax: none
  uint32_t makes = 0;         // bit i: lane i is made, by keys[i]
  uint32_t drops = 0;         // bit i: lane i is given up
  uint32_t unused = 0;
  std::array<uint64_t, kLanesMax> generations = {};
  std::array<LaneKey, kLanesMax> keys = {};
};

// A ring's lane.
struct LaneLease {
  int lane = -1;
  uint32_t makes = 0;  // lanes that were made with it
  uint64_t number = 0;
};

class LaneBook {
 public:
  // `made` counts the lanes that this end makes.
  LaneBook(std::shared_ptr<LaneMaker> maker, bool leads, std::atomic<uint64_t>* made);

  bool leads() const { return leads_; }

  // The follower. The ring counts as open until End with the offer's number.
  LaneOffer Offer();
  // UNAVAILABLE: the lead had none to grant, the lane cannot be made here, or it was broken off
  // here since the offer. INTERNAL: the grant does not fit the lanes here.
  absl::StatusOr<LaneLease> Accept(const LaneOffer& offer, const LaneGrant& grant);

  // The lead. An error goes with a grant of no lane, which is to be sent all the same. UNAVAILABLE:
  // more than kRingsAtOnce rings are open.
  absl::StatusOr<LaneLease> Grant(const LaneOffer& offer, LaneGrant* grant);

  // Of the ring that has the lease. Made: whether its lane, and those made with it, are made.
  absl::StatusOr<bool> Made(const LaneLease& lease);
  absl::Status Start(const LaneLease& lease, std::span<const LaneMessage> messages);
  absl::StatusOr<bool> Done(const LaneLease& lease);

  // The ring is closed, or will not use the pair any more. `number` 0: it made no offer. A lane on
  // which something is under way, or was made with this one and is not finished, is broken off.
  void End(const LaneLease& lease);

 private:
  struct Slot {
    std::unique_ptr<Lane> lane;
    uint64_t generation = 0;  // of the latest lane here
    uint64_t sent = 0, received = 0;
    bool leased = false;
    uint64_t holder = 0;    // at the lead: the number of the latest ring that got it
    uint64_t made_for = 0;  // likewise: of the ring with which it was made
  };

  absl::Status Differ(int lane, uint64_t here, uint64_t there) const;  // their generations
  absl::Status MakeLane(int lane, uint64_t generation, const LaneKey& key);
  void Hear(const LaneOffer& offer);
  bool MayJudge(int lane) const;
  bool IsWhole(const LaneOffer::State& offered, Slot* slot);
  absl::StatusOr<int> MakeLanes(const LaneOffer& offer, const std::vector<int>& empty,
                                LaneGrant* grant);

  const std::shared_ptr<LaneMaker> maker_;
  const bool leads_;
  const uint64_t book_;
  std::atomic<uint64_t>* const made_;

  std::mutex mutex_;  // guards all below, and the lanes' calls
  std::array<Slot, kLanesMax> slots_;
  bool any_made_ = false;
  LaneOffer latest_;          // at the lead: of those it has, the one with the highest number
  uint64_t next_number_ = 1;  // at the follower
  std::set<uint64_t> open_;   // likewise
};

}  // namespace skein::engine
