// A Link whose messages go by lanes, one for each pair of its ranks. Internal to engine/comm.
//
// Before a Wait starts its lanes, the hosts exchange an empty message for each message over
// the ring's host link. This shows what a lane cannot: sizes or calls that differ, and ranks
// that died, stall or gave up. With its first message to a rank the link takes a lane of the
// pair (lane_book.h), and keeps it until its end. Messages without data take none.
//
// What a Wait starts for one rank must be what a Wait of that rank starts for this one: so it is in
// all calls of LinkCommunicator.
//
// The lanes of a Wait run at the same time. Each waits only for its other end, which started the
// same, so they all end; on a GPU that takes room for the kernels of all lanes (nccl_lanes.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/comm/algorithms/link.h"
#include "engine/comm/device/lanes/lane_book.h"
#include "engine/comm/device/stream_memory.h"

namespace skein::engine {

class LaneLink : public Link {
 public:
  struct Parts {
    std::unique_ptr<Link> hosts;                              // the same ring's, between the hosts
    std::vector<std::shared_ptr<LaneBook>> books;             // by rank; null for its own
    std::unique_ptr<StreamMemory> memory;                     // the link's alone
    const char* name = "";                                    // begins the device's errors
    std::function<void(std::unique_ptr<StreamMemory>)> done;  // gets it if no wait has failed
    std::function<void()> failed;  // once, when a wait fails, before the hosts' link ends
  };

  explicit LaneLink(Parts parts);
  ~LaneLink() override;

  int Rank() const override { return parts_.hosts->Rank(); }
  int Size() const override { return parts_.hosts->Size(); }
  void Send(int to, std::span<const std::byte> data, Signature signature) override;
  void Receive(int from, std::span<std::byte> data, Signature signature) override;
  absl::Status Wait(CommDeadline deadline) override;
  absl::Status Health() override { return parts_.hosts->Health(); }
  LinkMemory* Memory() override { return parts_.memory.get(); }
  void Abort(const absl::Status& reason) override { parts_.hosts->Abort(reason); }

 private:
  struct Message {
    int peer = 0;
    LaneMessage of_lane;
    Signature signature = 0;
  };
  // What this link has with one rank.
  struct Peer {
    LaneBook* book = nullptr;
    LaneLease lease;
    LaneOffer offer;
    LaneGrant grant;
    bool asks = false;                // this Wait takes a lane
    std::vector<LaneMessage> starts;  // in this Wait
  };

  using Look = absl::StatusOr<bool> (LaneBook::*)(const LaneLease&);

  absl::Status Here(const absl::Status& status) const;
  void Sort();
  absl::Status Agree(CommDeadline deadline);
  absl::Status TakeLanes(CommDeadline deadline);
  absl::Status WhyNoLane(int lead, const absl::Status& here, CommDeadline deadline);
  absl::Status Move(CommDeadline deadline);
  absl::Status Await(CommDeadline deadline, Look done, bool (*concerns)(const Peer&));
  absl::Status Fail(const absl::Status& status, CommDeadline deadline);
  void EndLeases();

  Parts parts_;
  std::vector<Peer> peers_;        // by rank
  std::vector<Message> messages_;  // since the last Wait
  bool failed_ = false;
};

}  // namespace skein::engine
