// One rank's end of a group over an unreliable-order wire: which bytes go next, where arriving ones
// belong, and when the group is broken. No I/O, no clock, no lock: UcxMesh drives it under its own.
// Internal to engine/comm.
//
// Messages up to kEagerBytesMax go at once, and are kept where they come before their Receive.
// Longer ones wait for a kReady, which Receive sends by itself, so that in a collective (where both
// sides know what comes) nobody waits for a round trip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/algorithms/link.h"
#include "engine/comm/ucx/wire_message.h"

namespace skein::engine {

class WireGroup {
 public:
  struct Outgoing {
    std::span<const std::byte> data;
    uint64_t index = 0;
    Signature signature = 0;
    bool ready = false;
    bool offered = false;
    size_t taken = 0;   // bytes handed out by Next
    int fragments = 0;  // handed out and not yet sent
    bool all_taken = false;
  };

  // A part of a message, to be sent to rank `to`; Sent(message) when the wire no longer needs it.
  struct Fragment {
    WireHeader header;
    std::span<const std::byte> data;
    int to = 0;
    Outgoing* message = nullptr;
  };

  struct Control {
    int to = 0;
    WireHeader header;
    std::string text;
  };

  WireGroup(GroupDigest key, int rank, int size, size_t fragment_bytes_max);

  const GroupDigest& key() const { return key_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  void Send(int to, std::span<const std::byte> data, Signature signature);
  void Receive(int from, std::span<std::byte> data, Signature signature);
  bool Idle() const { return pending_ == 0; }

  // The next part for rank `to`, if one may be sent now.
  std::optional<Fragment> Next(int to);
  void Sent(Outgoing* message, int to);

  // REQUIRES: `header` names this group. A message that makes no sense breaks the group.
  void Arrived(const WireHeader& header, std::span<const std::byte> data);

  // UNAVAILABLE if this rank waits for, or cannot send to, a rank that left or is `dead`.
  absl::Status Lacking(const std::vector<bool>& dead) const;

  const absl::Status& broken() const { return broken_; }
  // Breaks the group here and tells all others. Later calls change nothing.
  void Break(const absl::Status& reason);
  // Forgets all buffers. REQUIRES: broken, and no fragment of them is under way.
  void Withdraw();
  // Tells the others that this rank leaves.
  void Leave();

  // What to send besides messages, in this order; the caller empties it.
  std::vector<Control>& controls() { return controls_; }

 private:
  struct Incoming {
    std::span<std::byte> data;
    Signature signature = 0;
    size_t received = 0;
  };
  // A message that came before its Receive.
  struct Early {
    std::vector<std::byte> data;
    uint64_t bytes = 0;
    Signature signature = 0;
    size_t received = 0;
  };
  struct Peer {
    std::list<Outgoing> out;             // in order; those not yet sent
    std::map<uint64_t, uint64_t> ready;  // its receives that wait for a Send, and their bytes
    uint64_t next_out = 0;
    std::map<uint64_t, Incoming> in;
    std::map<uint64_t, Early> early;
    uint64_t next_in = 0;
    std::optional<uint64_t> left_after;
  };

  void OnData(int from, const WireHeader& header, std::span<const std::byte> data);
  void OnOffer(int from, const WireHeader& header);
  void OnReady(int from, const WireHeader& header);
  void OnAbort(int from, const WireHeader& header, std::span<const std::byte> text);
  bool Agrees(int from, const WireHeader& header, uint64_t bytes, Signature signature);
  void BreakBySize(int from, uint64_t sent, int to, uint64_t expected);
  void AddControl(int to, WireKind kind, uint64_t index, uint64_t bytes, Signature signature,
                  std::string text);

  const GroupDigest key_;
  const int rank_;
  const size_t fragment_bytes_max_;
  std::vector<Peer> peers_;  // by rank
  int pending_ = 0;          // sends and receives under way
  absl::Status broken_;
  std::vector<Control> controls_;
};

}  // namespace skein::engine
