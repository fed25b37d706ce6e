#include "engine/comm/ucx/ucx_peers.h"

#include <algorithm>
#include <array>
#include <utility>

namespace skein::engine {
namespace {

std::array<std::span<const std::byte>, 2> PartsOf(const UcxOperation& operation) {
  return {std::as_bytes(std::span(&operation.header, 1)), operation.data};
}

}  // namespace

UcxPeers::UcxPeers(UcxPlane* plane, PlaneUser* user, HostWire* host, TcpWire* tcp,
                   std::function<void(const UcxOperation&)> on_sent, std::function<void()> on_death,
                   std::string far_refused)
    : plane_(plane),
      user_(user),
      host_(host),
      tcp_(tcp),
      far_refused_(std::move(far_refused)),
      on_sent_(std::move(on_sent)),
      on_death_(std::move(on_death)) {}

absl::StatusOr<UcxPeer*> UcxPeers::Get(const UcxAddress& address) {
  const auto known = peers_.find(address.worker);
  if (known != peers_.end()) {
    ++known->second->groups;
    return known->second.get();
  }
  auto connected = std::make_unique<UcxPeer>();
  connected->owner = this;
  connected->process = address.process;
  connected->groups = 1;
  auto status = Connect(address, connected.get());
  if (absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status)) return status;
  const auto& peer = peers_[address.worker] = std::move(connected);
  // Only now: what was opened is of the process that is alive.
  peer->dead = !processes_.Add(address.process, peer.get()) || !status.ok();
  ++(peer->dead ? lost_ : made_);
  return peer.get();
}

bool UcxPeers::Connected(const UcxAddress& address) const {
  const auto known = peers_.find(address.worker);
  return known != peers_.end() && !known->second->dead;
}

void UcxPeers::Release(UcxPeer* peer) {
  if (peer == nullptr) return;
  --peer->groups;
  if (peer->dead) ForgetDead();
}

void UcxPeers::ForgetDead() {
  std::erase_if(peers_, [this](const auto& known) {
    UcxPeer* const peer = known.second.get();
    if (!peer->dead || peer->groups > 0) return false;
    Close(peer);
    if (!peer->operations.empty()) return false;  // the plane still refers to it
    if (peer->ucx != nullptr) plane_->Release(peer->ucx);
    processes_.Remove(peer);
    std::erase(ended_, peer);
    return true;
  });
}

absl::Status UcxPeers::Connect(const UcxAddress& address, UcxPeer* peer) {
  if (host_ != nullptr) {
    auto channel = host_->Connect(address.host);
    peer->near = channel.ok();
    if (channel.ok()) peer->channel = *std::move(channel);
    if (channel.ok() || absl::IsResourceExhausted(channel.status())) return channel.status();
  }
  if (!far_refused_.empty()) return absl::FailedPreconditionError(far_refused_);
  if (tcp_ != nullptr && !address.tcp.empty() && !(plane_->fabric() && address.fabric)) {
    auto channel = tcp_->Connect(address.tcp);
    if (channel.ok()) peer->channel = *std::move(channel);
    tcp_ended_ = 0;  // it may have ended already
    return channel.status();
  }
  const auto connected = plane_->Connect(address.worker);
  if (connected.ok()) peer->ucx = *connected;
  return connected.status();
}

bool UcxPeers::Send(UcxPeer* peer, UcxOperation operation) {
  if (spare_.empty()) spare_.emplace_back();
  const auto slot = spare_.begin();
  *slot = std::move(operation);
  if (!slot->owned.empty()) slot->data = slot->owned;
  slot->peer = peer;
  slot->self = slot;
  if (peer->dead) return true;
  if (peer->channel != nullptr) {
    const bool first = peer->operations.empty();
    if (first && peer->channel->Write(PartsOf(*slot))) return true;
    if (first) waiting_.push_back(peer);
  } else {
    const auto started = plane_->Send(user_, peer->ucx, PartsOf(*slot), &*slot);
    if (started.how == UcxPlane::How::kFailed) Lost(peer);
    if (started.how != UcxPlane::How::kUnderWay) return true;
    slot->in_ucx = started.operation;
  }
  peer->operations.splice(peer->operations.end(), spare_, slot);
  ++under_way_;
  return false;
}

void UcxPeers::OnSent(void* cookie, bool ok) {
  auto* const operation = static_cast<UcxOperation*>(cookie);
  if (!ok) Lost(operation->peer);
  Ended(operation);
}

void UcxPeers::Ended(UcxOperation* operation) {
  --under_way_;
  on_sent_(*operation);
  operation->owned = {};
  spare_.splice(spare_.end(), operation->peer->operations, operation->self);
}

int UcxPeers::SendWaiting() {
  int sent = 0;
  for (UcxPeer* const peer : waiting_) {
    while (!peer->operations.empty()) {
      UcxOperation& operation = peer->operations.front();
      if (!peer->channel->Write(PartsOf(operation))) break;
      Ended(&operation);
      ++sent;
    }
  }
  if (sent > 0) std::erase_if(waiting_, [](UcxPeer* peer) { return peer->operations.empty(); });
  return sent;
}

bool UcxPeers::AwaitRoom() {
  return std::all_of(waiting_.begin(), waiting_.end(), [](UcxPeer* peer) {
    const UcxOperation& operation = peer->operations.front();
    return peer->channel->AwaitRoom(sizeof operation.header + operation.data.size());
  });
}

void UcxPeers::Lost(UcxPeer* peer) {
  if (std::exchange(peer->dead, true)) return;
  ++lost_;
  on_death_();
}

void UcxPeers::Disown(UcxGroup* group) {
  for (auto& [address, peer] : peers_) {
    for (UcxOperation& operation : peer->operations) {
      if (operation.group != group) continue;
      if (operation.in_ucx != nullptr) {
        plane_->TakeOver(operation.in_ucx, &operation);
      } else {
        operation.owned.assign(operation.data.begin(), operation.data.end());
        operation.data = operation.owned;
      }
      operation.group = nullptr;
      operation.message = nullptr;
    }
  }
}

bool UcxPeers::LoseEnded() {
  for (void* const token : processes_.Ended()) ended_.push_back(static_cast<UcxPeer*>(token));
  const uint64_t tcp_ended = tcp_ == nullptr ? 0 : tcp_->ended();
  if (std::exchange(tcp_ended_, tcp_ended) != tcp_ended) {
    for (auto& [address, peer] : peers_) {
      const bool lost = peer->channel != nullptr && peer->channel->ended();
      if (lost && std::find(ended_.begin(), ended_.end(), peer.get()) == ended_.end()) {
        ended_.push_back(peer.get());
      }
    }
  }
  bool any = false;
  // Read once: one that the other user loses meanwhile is for the next look.
  const uint64_t losses = plane_->losses();
  if (std::exchange(ucx_losses_, losses) != losses) {
    for (auto& [address, peer] : peers_) {
      if (peer->ucx == nullptr || peer->dead || !plane_->IsLost(peer->ucx)) continue;
      Lost(peer.get());
      any = true;
    }
  }
  any |= std::erase_if(ended_, [this](UcxPeer* peer) {
           if (peer->near && host_->HasUnread(peer->process)) return false;
           Lost(peer);
           Close(peer);
           return true;
         }) > 0;
  if (any) ForgetDead();
  return any;
}

// What is under way to it ends, where UCX might try for ever.
void UcxPeers::Close(UcxPeer* peer) {
  if (peer->channel != nullptr) {
    std::erase(waiting_, peer);
    while (!peer->operations.empty()) Ended(&peer->operations.front());
    peer->channel.reset();
  }
  if (peer->ucx != nullptr) plane_->Cut(peer->ucx);
}

void UcxPeers::CloseAll() {
  for (auto& [address, peer] : peers_) {
    if (peer->ucx == nullptr) {
      Close(peer.get());
      continue;
    }
    while (!peer->operations.empty()) {
      plane_->TakeOver(peer->operations.front().in_ucx, nullptr);
      Ended(&peer->operations.front());
    }
    plane_->Release(std::exchange(peer->ucx, nullptr));
  }
}

}  // namespace skein::engine
