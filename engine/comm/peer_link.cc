#include "engine/comm/peer_link.h"

#include <utility>

namespace skein::engine {
namespace {

constexpr Signature kTaken = 7;  // no operation of LinkCommunicator's

Signature WithSize(Signature signature, size_t bytes) {
  return signature ^ (static_cast<Signature>(bytes) * 0x9e3779b97f4a7c15u);
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
  absl::Status status = memory_->Finish();  // what is sent is there
  if (status.ok()) status = Tell(deadline);
  if (status.ok()) status = CopyIn();
  if (status.ok()) status = Acknowledge(deadline);
  messages_.clear();
  if (status.ok()) return status;
  (void)memory_->Finish();  // nobody here writes to the buffers any more
  hosts_->Abort(status);
  return status;
}

// Where everything lies, both ways.
absl::Status PeerLink::Tell(CommDeadline deadline) {
  for (Message& message : messages_) {
    if (message.outgoing && !message.data.empty()) {
      absl::StatusOr<PeerPlace> place = memory_->Export(message.data.data());
      if (!place.ok()) return place.status();
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
    if (!from.ok()) return from.status();
    memory_->Copy(message.data.data(), {*from, message.data.size()});
  }
  return memory_->Finish();
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
