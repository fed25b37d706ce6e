#include "engine/comm/ucx/ucx_peers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/comm/ucx/ucx_mesh.h"
#include "engine/ucx/ucx_context.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr auto kCloseMax = std::chrono::milliseconds(500);

// UCX's generic datatype: header and data are packed when UCX has room, from where they are then.
void* StartPack(void*, const void* operation, size_t) { return const_cast<void*>(operation); }

size_t PackedSize(void* state) {
  return sizeof(WireHeader) + static_cast<UcxOperation*>(state)->data.size();
}

size_t Pack(void* state, size_t offset, void* to, size_t bytes_max) {
  const auto& operation = *static_cast<const UcxOperation*>(state);
  auto* place = static_cast<std::byte*>(to);
  size_t done = 0;
  if (offset < sizeof(WireHeader)) {
    done = std::min(sizeof(WireHeader) - offset, bytes_max);
    std::memcpy(place, reinterpret_cast<const std::byte*>(&operation.header) + offset, done);
    offset += done;
  }
  if (offset < sizeof(WireHeader)) return done;
  const auto rest = operation.data.subspan(offset - sizeof(WireHeader));
  const size_t bytes = std::min(rest.size(), bytes_max - done);
  if (bytes > 0) std::memcpy(place + done, rest.data(), bytes);
  return done + bytes;
}

void Finish(void*) {}

ucs_status_ptr_t Start(ucp_ep_h ep, UcxOperation* operation, ucp_datatype_t datatype,
                       ucp_send_nbx_callback_t on_sent) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_DATATYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.datatype = datatype;
  params.cb.send = on_sent;
  params.user_data = operation;
  return ucp_am_send_nbx(ep, kCommMessage, nullptr, 0, operation, 1, &params);
}

std::array<std::span<const std::byte>, 2> PartsOf(const UcxOperation& operation) {
  return {std::as_bytes(std::span(&operation.header, 1)), operation.data};
}

}  // namespace

UcxPeers::UcxPeers(const UcxContext& context, HostWire* host, TcpWire* tcp,
                   std::function<void(const UcxOperation&)> on_sent, std::function<void()> on_death)
    : worker_(context.worker),
      fabric_(context.fabric),
      host_(host),
      tcp_(tcp),
      on_sent_(std::move(on_sent)),
      on_death_(std::move(on_death)) {
  ucp_generic_dt_ops_t operations{};
  operations.start_pack = StartPack;
  operations.packed_size = PackedSize;
  operations.pack = Pack;
  operations.finish = Finish;
  SKEIN_CHECK(ucp_dt_create_generic(&operations, this, &datatype_) == UCS_OK);
}

UcxPeers::~UcxPeers() { ucp_dt_destroy(datatype_); }

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
  if (absl::IsResourceExhausted(status)) return status;
  const auto& peer = peers_[address.worker] = std::move(connected);
  ++made_;
  // Only now: what was opened is of the process that is alive.
  peer->dead = !processes_.Add(address.process, peer.get()) || !status.ok();
  return peer.get();
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
    if (!peer->operations.empty()) return false;  // UCX still refers to it
    processes_.Remove(peer);
    std::erase(ended_, peer);
    return true;
  });
  std::erase_if(closing_, [](ucs_status_ptr_t request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
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
  if (tcp_ != nullptr && !address.tcp.empty() && !(fabric_ && address.fabric)) {
    auto channel = tcp_->Connect(address.tcp);
    if (channel.ok()) peer->channel = *std::move(channel);
    tcp_ended_ = 0;  // it may have ended already
    return channel.status();
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnError;
  params.err_handler.arg = peer;
  auto status = FromUcs(ucp_ep_create(worker_, &params, &peer->ep), "ucp_ep_create");
  if (!status.ok()) peer->ep = nullptr;
  return status;
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
    const ucs_status_ptr_t request = Start(peer->ep, &*slot, datatype_, OnSent);
    if (UCS_PTR_IS_ERR(request)) Lost(peer);
    if (!UCS_PTR_IS_PTR(request)) return true;
  }
  peer->operations.splice(peer->operations.end(), spare_, slot);
  ++under_way_;
  return false;
}

void UcxPeers::OnSent(void* request, ucs_status_t status, void* user_data) {
  auto* const operation = static_cast<UcxOperation*>(user_data);
  UcxPeers* const self = operation->peer->owner;
  if (status != UCS_OK) self->Lost(operation->peer);
  self->Ended(operation);
  ucp_request_free(request);
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

void UcxPeers::OnError(void* argument, ucp_ep_h, ucs_status_t) {
  auto* const peer = static_cast<UcxPeer*>(argument);
  peer->owner->Lost(peer);
}

void UcxPeers::Lost(UcxPeer* peer) {
  if (std::exchange(peer->dead, true)) return;
  on_death_();
}

void UcxPeers::Disown(UcxGroup* group) {
  for (auto& [address, peer] : peers_) {
    for (UcxOperation& operation : peer->operations) {
      if (operation.group != group) continue;
      operation.owned.assign(operation.data.begin(), operation.data.end());
      operation.data = operation.owned;
      operation.group = nullptr;
      operation.message = nullptr;
    }
  }
}

bool UcxPeers::LoseEnded() {
  for (void* const token : processes_.Ended()) ended_.push_back(static_cast<UcxPeer*>(token));
  if (tcp_ != nullptr && std::exchange(tcp_ended_, tcp_->ended()) != tcp_->ended()) {
    for (auto& [address, peer] : peers_) {
      const bool lost = peer->channel != nullptr && peer->channel->ended();
      if (lost && std::find(ended_.begin(), ended_.end(), peer.get()) == ended_.end()) {
        ended_.push_back(peer.get());
      }
    }
  }
  const bool any = std::erase_if(ended_, [this](UcxPeer* peer) {
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
  if (peer->ep == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(std::exchange(peer->ep, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

void UcxPeers::CloseAll() {
  const auto until = std::chrono::steady_clock::now() + kCloseMax;
  for (auto& [address, peer] : peers_) Close(peer.get());
  const auto open = [](ucs_status_ptr_t request) {
    return ucp_request_check_status(request) == UCS_INPROGRESS;
  };
  while ((under_way_ > 0 || std::any_of(closing_.begin(), closing_.end(), open)) &&
         std::chrono::steady_clock::now() < until) {
    ucp_worker_progress(worker_);
  }
  for (ucs_status_ptr_t request : closing_) ucp_request_free(request);
  closing_.clear();
}

}  // namespace skein::engine
