#include "engine/comm/device/peers/peer_link.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr Signature kTaken = 7;  // no operation of LinkCommunicator's

// The error at this rank, as the other ranks are told of it.
absl::Status OfRank(int rank, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("ipc: rank ", rank, " ", std::string(status.message())));
}

}  // namespace

void PeerLink::Send(int to, std::span<const std::byte> data, Signature signature) {
  messages_.push_back({true,
                       to,
                       {const_cast<std::byte*>(data.data()), data.size()},
                       WithSize(signature, data.size()),
                       {}});
}

void PeerLink::Receive(int from, std::span<std::byte> data, Signature signature) {
  messages_.push_back({false, from, data, WithSize(signature, data.size()), {}});
}

absl::Status PeerLink::Wait(CommDeadline deadline) {
  absl::Status status = OfRank(Rank(), memory_->Finish());  // what is sent is there
  if (status.ok()) status = Tell(deadline);
  if (status.ok()) status = CopyIn();
  if (status.ok()) status = Acknowledge(deadline);
  if (!status.ok()) {
    failed_ = true;
    (void)memory_->Finish();  // nobody here writes to the buffers any more
    hosts_->Abort(status);
    // Returns at once; afterwards the hosts' link no longer uses the messages' places.
    (void)hosts_->Wait(deadline);
  }
  messages_.clear();
  return status;
}

// Where everything lies, both ways.
absl::Status PeerLink::Tell(CommDeadline deadline) {
  for (Message& message : messages_) {
    if (message.outgoing && !message.data.empty()) {
      absl::StatusOr<PeerPlace> place = memory_->Export(message.data.data());
      if (!place.ok()) return OfRank(Rank(), place.status());
      message.place = *place;
    }
    const auto bytes = std::as_writable_bytes(std::span(&message.place, 1));
    if (message.outgoing) hosts_->Send(message.peer, bytes, message.signature);
    if (!message.outgoing) hosts_->Receive(message.peer, bytes, message.signature);
  }
  return hosts_->Wait(deadline);
}

absl::Status PeerLink::CopyIn() {
  for (const Message& message : messages_) {
    if (message.outgoing || message.data.empty()) continue;
    const absl::StatusOr<const std::byte*> from = memory_->Import(message.place);
    if (!from.ok()) {
      return OfRank(
          Rank(), absl::Status(from.status().code(),
                               absl::StrCat("cannot open rank ", message.peer,
                                            "'s memory: ", std::string(from.status().message()))));
    }
    memory_->Copy(message.data.data(), {*from, message.data.size()});
  }
  return OfRank(Rank(), memory_->Finish());
}

absl::Status PeerLink::Acknowledge(CommDeadline deadline) {
  for (const Message& message : messages_) {
    if (message.data.empty()) continue;
    if (message.outgoing) hosts_->Receive(message.peer, {}, kTaken);
    if (!message.outgoing) hosts_->Send(message.peer, {}, kTaken);
  }
  return hosts_->Wait(deadline);
}

}  // namespace skein::engine
