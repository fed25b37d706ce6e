#include "engine/comm/device/lanes/lane_link.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::microseconds(20);
constexpr int kSpins = 200;  // looks at the lanes before polls sleep between them
// No operations of LinkCommunicator's.
constexpr Signature kOffer = 7, kGrant = 15;

template <typename T>
std::span<std::byte> BytesOf(T* one) {
  return std::as_writable_bytes(std::span(one, 1));
}

}  // namespace

LaneLink::LaneLink(Parts parts) : parts_(std::move(parts)), peers_(parts_.books.size()) {
  for (size_t r = 0; r < peers_.size(); ++r) peers_[r].book = parts_.books[r].get();
}

LaneLink::~LaneLink() {
  EndLeases();
  if (!failed_ && messages_.empty()) parts_.done(std::move(parts_.memory));
}

void LaneLink::EndLeases() {
  for (Peer& peer : peers_) {
    if (peer.book != nullptr) peer.book->End(std::exchange(peer.lease, {}));
  }
}

// The error at this rank, as the other ranks are told of it.
absl::Status LaneLink::Here(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(parts_.name, ": rank ", Rank(), " ",
                                                  std::string(status.message())));
}

void LaneLink::Send(int to, std::span<const std::byte> data, Signature signature) {
  messages_.push_back({to,
                       {true, const_cast<std::byte*>(data.data()), data.size()},
                       WithSize(signature, data.size())});
}

void LaneLink::Receive(int from, std::span<std::byte> data, Signature signature) {
  messages_.push_back({from, {false, data.data(), data.size()}, WithSize(signature, data.size())});
}

absl::Status LaneLink::Wait(CommDeadline deadline) {
  absl::Status status = Here(parts_.memory->Finish());  // what is sent is there
  if (status.ok()) {
    Sort();
    status = Agree(deadline);
  }
  if (status.ok()) status = TakeLanes(deadline);
  if (status.ok()) status = Move(deadline);
  if (!status.ok()) return Fail(status, deadline);
  messages_.clear();
  return status;
}

void LaneLink::Sort() {
  for (Peer& peer : peers_) peer.starts.clear();
  for (const Message& message : messages_) {
    if (message.of_lane.bytes > 0) peers_[message.peer].starts.push_back(message.of_lane);
  }
  for (Peer& peer : peers_) peer.asks = !peer.starts.empty() && peer.lease.lane < 0;
}

// That both ends mean the same messages; and what followers offer.
absl::Status LaneLink::Agree(CommDeadline deadline) {
  Link* const hosts = parts_.hosts.get();
  for (const Message& message : messages_) {
    if (message.of_lane.outgoing) hosts->Send(message.peer, {}, message.signature);
    if (!message.of_lane.outgoing) hosts->Receive(message.peer, {}, message.signature);
  }
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.asks) continue;
    if (peer.book->leads()) {
      hosts->Receive(static_cast<int>(r), BytesOf(&peer.offer), kOffer);
      continue;
    }
    peer.offer = peer.book->Offer();
    peer.lease.number = peer.offer.number;
    hosts->Send(static_cast<int>(r), BytesOf(&peer.offer), kOffer);
  }
  return hosts->Wait(deadline);
}

absl::Status LaneLink::TakeLanes(CommDeadline deadline) {
  Link* const hosts = parts_.hosts.get();
  absl::Status first;
  bool any = false;
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.asks) continue;
    any = true;
    if (!peer.book->leads()) {
      hosts->Receive(static_cast<int>(r), BytesOf(&peer.grant), kGrant);
      continue;
    }
    const absl::StatusOr<LaneLease> lease = peer.book->Grant(peer.offer, &peer.grant);
    if (lease.ok()) peer.lease = *lease;
    if (first.ok()) first = lease.status();
    hosts->Send(static_cast<int>(r), BytesOf(&peer.grant), kGrant);
  }
  if (!any) return absl::OkStatus();
  const absl::Status told = hosts->Wait(deadline);
  if (!first.ok() || !told.ok()) return first.ok() ? told : Here(first);
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.asks || peer.book->leads()) continue;
    const absl::StatusOr<LaneLease> lease = peer.book->Accept(peer.offer, peer.grant);
    if (!lease.ok()) return WhyNoLane(static_cast<int>(r), lease.status(), deadline);
    peer.lease = *lease;
  }
  return Await(deadline, &LaneBook::Made, [](const Peer& peer) { return peer.asks; });
}

// A lead that grants no lane ends the ring behind its grant, and says why: a message that it does
// not send brings that, or its death.
absl::Status LaneLink::WhyNoLane(int lead, const absl::Status& here, CommDeadline deadline) {
  LaneGrant* const grant = &peers_[static_cast<size_t>(lead)].grant;
  if (grant->lane < kLanesMax) return Here(here);
  parts_.hosts->Receive(lead, BytesOf(grant), kGrant);
  const absl::Status told = parts_.hosts->Wait(deadline);
  return told.ok() ? Here(here) : told;
}

absl::Status LaneLink::Move(CommDeadline deadline) {
  for (Peer& peer : peers_) {
    if (peer.starts.empty()) continue;
    const absl::Status started = peer.book->Start(peer.lease, peer.starts);
    if (!started.ok()) return Here(started);
  }
  return Await(deadline, &LaneBook::Done, [](const Peer& peer) { return !peer.starts.empty(); });
}

// Until `done` is true of all that `concerns` names.
absl::Status LaneLink::Await(CommDeadline deadline, Look done, bool (*concerns)(const Peer&)) {
  for (int look = 0;; ++look) {
    bool all = true;
    for (const Peer& peer : peers_) {
      if (!concerns(peer)) continue;
      const absl::StatusOr<bool> one = (peer.book->*done)(peer.lease);
      if (!one.ok()) return Here(one.status());
      all = all && *one;
    }
    if (all) return absl::OkStatus();
    const absl::Status health = parts_.hosts->Health();
    if (!health.ok()) return health;
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", Rank(), "'s deadline passed"));
    }
    if (look >= kSpins) std::this_thread::sleep_for(kPoll);
  }
}

// Nobody here touches the buffers any more, and the others are told.
absl::Status LaneLink::Fail(const absl::Status& status, CommDeadline deadline) {
  parts_.hosts->Abort(status);
  EndLeases();
  if (!std::exchange(failed_, true)) {
    (void)parts_.memory->Finish();
    parts_.failed();
  }
  // Returns at once; afterwards the hosts' link no longer uses the offers and grants.
  (void)parts_.hosts->Wait(deadline);
  messages_.clear();
  return status;
}

}  // namespace skein::engine
