#include "engine/comm/ucx/wire_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

void CopyTo(std::byte* place, std::span<const std::byte> data) {
  if (!data.empty()) std::memcpy(place, data.data(), data.size());
}

}  // namespace

WireGroup::WireGroup(GroupDigest key, int rank, int size, size_t fragment_bytes_max)
    : key_(key), rank_(rank), fragment_bytes_max_(fragment_bytes_max), peers_(size) {}

void WireGroup::Send(int to, std::span<const std::byte> data, Signature signature) {
  if (!broken_.ok()) return;
  Peer& peer = peers_[to];
  Outgoing message{.data = data, .index = peer.next_out++, .signature = signature};
  message.ready = data.size() <= kEagerBytesMax;
  if (const auto ready = peer.ready.find(message.index); ready != peer.ready.end()) {
    if (ready->second != data.size()) return BreakBySize(rank_, data.size(), to, ready->second);
    message.ready = true;
    peer.ready.erase(ready);
  }
  if (!message.ready) {
    AddControl(to, WireKind::kOffer, message.index, data.size(), signature, "");
  }
  peer.out.push_back(message);
  ++pending_;
}

void WireGroup::Receive(int from, std::span<std::byte> data, Signature signature) {
  if (!broken_.ok()) return;
  Peer& peer = peers_[from];
  const uint64_t index = peer.next_in++;
  Incoming incoming{data, signature, 0};
  if (auto early = peer.early.extract(index); !early.empty()) {
    const Early& message = early.mapped();
    if (message.bytes != data.size() || message.signature != signature) {
      return BreakBySize(from, message.bytes, rank_, data.size());
    }
    // Parts of a message may come in any order; then all of it is kept, and `received` counts.
    CopyTo(data.data(), message.data);
    incoming.received = message.received;
    const bool offered = data.size() > kEagerBytesMax;
    if (!offered && incoming.received == data.size()) return;
  }
  if (data.size() > kEagerBytesMax) {
    AddControl(from, WireKind::kReady, index, data.size(), signature, "");
  }
  peer.in[index] = incoming;
  ++pending_;
}

std::optional<WireGroup::Fragment> WireGroup::Next(int to) {
  for (Outgoing& message : peers_[to].out) {
    if (!message.ready || message.all_taken) continue;
    const size_t bytes = std::min(fragment_bytes_max_, message.data.size() - message.taken);
    Fragment fragment{
        .data = message.data.subspan(message.taken, bytes), .to = to, .message = &message};
    fragment.header = {.group = key_,
                       .kind = WireKind::kData,
                       .from = static_cast<uint32_t>(rank_),
                       .index = message.index,
                       .bytes = message.data.size(),
                       .offset = message.taken,
                       .signature = message.signature};
    message.taken += bytes;
    message.all_taken = message.taken == message.data.size();
    ++message.fragments;
    return fragment;
  }
  return std::nullopt;
}

void WireGroup::Sent(Outgoing* message, int to) {
  if (--message->fragments > 0 || !message->all_taken) return;
  peers_[to].out.remove_if([&](const Outgoing& other) { return &other == message; });
  --pending_;
}

void WireGroup::Arrived(const WireHeader& header, std::span<const std::byte> data) {
  const int from = static_cast<int>(header.from);
  if (!broken_.ok() || from < 0 || from >= size() || from == rank_) return;
  switch (header.kind) {
    case WireKind::kData:
      return OnData(from, header, data);
    case WireKind::kOffer:
      return OnOffer(from, header);
    case WireKind::kReady:
      return OnReady(from, header);
    case WireKind::kAbort:
      return OnAbort(from, header, data);
    case WireKind::kLeave:
      peers_[from].left_after = header.index;
      return;
  }
}

void WireGroup::OnData(int from, const WireHeader& header, std::span<const std::byte> data) {
  Peer& peer = peers_[from];
  if (header.offset > header.bytes || data.size() > header.bytes - header.offset) return;
  if (const auto found = peer.in.find(header.index); found != peer.in.end()) {
    Incoming& incoming = found->second;
    if (!Agrees(from, header, incoming.data.size(), incoming.signature)) return;
    CopyTo(incoming.data.data() + header.offset, data);
    incoming.received += data.size();
    if (incoming.received < incoming.data.size()) return;
    peer.in.erase(found);
    --pending_;
    return;
  }
  if (header.index < peer.next_in || header.bytes > kEagerBytesMax) return;
  Early& early = peer.early[header.index];
  early.data.resize(header.bytes);
  early.bytes = header.bytes;
  early.signature = header.signature;
  CopyTo(early.data.data() + header.offset, data);
  early.received += data.size();
}

void WireGroup::OnOffer(int from, const WireHeader& header) {
  Peer& peer = peers_[from];
  if (const auto found = peer.in.find(header.index); found != peer.in.end()) {
    Agrees(from, header, found->second.data.size(), found->second.signature);
  } else if (header.index >= peer.next_in) {
    peer.early[header.index] = {.data = {}, .bytes = header.bytes, .signature = header.signature};
  }
}

void WireGroup::OnReady(int from, const WireHeader& header) {
  Peer& peer = peers_[from];
  if (header.index >= peer.next_out) {
    peer.ready[header.index] = header.bytes;
    return;
  }
  const auto found = std::find_if(peer.out.begin(), peer.out.end(), [&](const Outgoing& message) {
    return message.index == header.index;
  });
  if (found == peer.out.end()) return;
  if (found->data.size() != header.bytes) {
    return BreakBySize(rank_, found->data.size(), from, header.bytes);
  }
  found->ready = true;
}

void WireGroup::OnAbort(int from, const WireHeader& header, std::span<const std::byte> text) {
  const std::string reason(reinterpret_cast<const char*>(text.data()), text.size());
  broken_ = header.bytes == static_cast<uint64_t>(absl::StatusCode::kInternal)
                ? absl::InternalError(reason)
                : absl::UnavailableError(reason);
}

bool WireGroup::Agrees(int from, const WireHeader& header, uint64_t bytes, Signature signature) {
  if (header.bytes == bytes && header.signature == signature) return true;
  BreakBySize(from, header.bytes, rank_, bytes);
  return false;
}

void WireGroup::BreakBySize(int from, uint64_t sent, int to, uint64_t expected) {
  Break(absl::InternalError(absl::StrCat("rank ", from, " sends ", sent, " bytes where rank ", to,
                                         " expects ", expected, ", or in another operation")));
}

void WireGroup::AddControl(int to, WireKind kind, uint64_t index, uint64_t bytes,
                           Signature signature, std::string text) {
  Control control{.to = to, .header = {}, .text = std::move(text)};
  control.header = {.group = key_,
                    .kind = kind,
                    .from = static_cast<uint32_t>(rank_),
                    .index = index,
                    .bytes = bytes,
                    .offset = 0,
                    .signature = signature};
  controls_.push_back(std::move(control));
}

absl::Status WireGroup::Lacking(const std::vector<bool>& dead) const {
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    const auto unready = [](const Outgoing& message) { return !message.ready; };
    if (dead[r] && (!peer.in.empty() || !peer.out.empty())) {
      return absl::UnavailableError(absl::StrCat("rank ", r, " died"));
    }
    // Of what it sent before it left, all will come.
    if (peer.left_after.has_value() &&
        ((!peer.in.empty() && peer.in.rbegin()->first >= *peer.left_after) ||
         std::any_of(peer.out.begin(), peer.out.end(), unready))) {
      return absl::UnavailableError(absl::StrCat("rank ", r, " left the group"));
    }
  }
  return absl::OkStatus();
}

void WireGroup::Break(const absl::Status& reason) {
  if (!broken_.ok()) return;
  const std::string text(reason.message());
  broken_ = reason.code() == absl::StatusCode::kInternal ? reason : absl::UnavailableError(text);
  controls_.clear();
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) {
      AddControl(r, WireKind::kAbort, 0, static_cast<uint64_t>(broken_.code()), 0, text);
    }
  }
}

void WireGroup::Withdraw() {
  for (Peer& peer : peers_) {
    peer.out.clear();
    peer.in.clear();
    peer.early.clear();
    peer.ready.clear();
  }
  pending_ = 0;
}

void WireGroup::Leave() {
  if (!broken_.ok()) return;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) AddControl(r, WireKind::kLeave, peers_[r].next_out, 0, 0, "");
  }
}

}  // namespace skein::engine
