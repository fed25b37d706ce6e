#include "engine/transport/ucx/ucx_endpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/ucx/ucx_address.h"

namespace skein::engine {
namespace {

constexpr auto kSettleMax = std::chrono::seconds(1);
constexpr auto kCutMax = std::chrono::milliseconds(500);

void Fail(const absl::Status& status, WireTicket* ticket) {
  if (ticket->error.ok()) ticket->error = status;
}

absl::Status LostByUcx() { return absl::UnavailableError("peer lost: UCX cannot reach it"); }

absl::Status NotStarted(const Endpoint& endpoint) {
  if (endpoint.ucx == nullptr || endpoint.plane->IsLost(endpoint.ucx)) return LostByUcx();
  return absl::UnavailableError("UCX could not start the put in this process");
}

using Parts = std::array<std::span<const std::byte>, 2 + kFragmentsMax>;

// Of the operation's message; returns how many.
std::span<const std::span<const std::byte>> PartsOf(const Operation& operation, Parts* parts) {
  (*parts)[0] = std::as_bytes(std::span(&operation.frame, 1));
  (*parts)[1] = {reinterpret_cast<const std::byte*>(&operation.put.header),
                 operation.frame.header_bytes};
  std::copy_n(operation.put.from.begin(), operation.parts, parts->begin() + 2);
  return std::span(*parts).first(2 + operation.parts);
}

// False: no room in the ring.
bool Write(const Operation& operation) {
  Parts parts;
  return operation.endpoint->channel->Write(PartsOf(operation, &parts));
}

void LaunchInHost(Operation* operation) {
  Endpoint* const endpoint = operation->endpoint;
  const bool first = endpoint->operations.empty();
  if (first && Write(*operation)) return;
  Begin(operation->ticket, operation->bytes);
  endpoint->operations.splice(endpoint->operations.end(), endpoint->spare, operation->self);
  if (first) endpoint->waiting->push_back(endpoint);
}

void Launch(Operation* operation) {
  Endpoint* const endpoint = operation->endpoint;
  if (endpoint->channel != nullptr) return LaunchInHost(operation);
  if (endpoint->ucx == nullptr) {
    if (operation->ticket != nullptr) Fail(endpoint->health, operation->ticket);
    return;
  }
  Parts parts;
  Launched(operation, endpoint->plane->Send(endpoint->user, endpoint->ucx,
                                            PartsOf(*operation, &parts), operation));
}

std::string WhyNoFabric(bool here, bool there) {
  if (here && there) return "";
  if (!here && !there) return "no RDMA device at either end";
  return here ? "no RDMA device at the other end" : "no RDMA device here";
}

void Abandon(Endpoint* endpoint) {
  for (Operation& operation : endpoint->operations) {
    Finish(operation.ticket, operation.bytes, absl::UnavailableError("the peer does not answer"));
    operation.ticket = nullptr;
  }
}

}  // namespace

Operation* NewOperation(Endpoint* endpoint, uint64_t bytes, WireTicket* ticket) {
  if (endpoint->spare.empty()) endpoint->spare.emplace_back();
  const auto operation = endpoint->spare.begin();
  operation->endpoint = endpoint;
  operation->self = operation;
  operation->ticket = ticket;
  operation->bytes = bytes;
  operation->in_ucx = nullptr;
  operation->by_rma = operation->flushes = false;
  operation->acknowledges = 0;
  return &*operation;
}

void Launched(Operation* operation, UcxPlane::Started started) {
  Endpoint* const endpoint = operation->endpoint;
  if (started.how == UcxPlane::How::kUnderWay) {
    operation->in_ucx = started.operation;
    Begin(operation->ticket, operation->bytes);
    endpoint->operations.splice(endpoint->operations.end(), endpoint->spare, operation->self);
  } else if (started.how == UcxPlane::How::kFailed && operation->ticket != nullptr) {
    Fail(NotStarted(*endpoint), operation->ticket);
  }
}

void EndOperation(Operation* operation, bool ok) {
  Finish(operation->ticket, operation->bytes, ok ? absl::OkStatus() : LostByUcx());
  operation->endpoint->operations.erase(operation->self);
}

void Begin(WireTicket* ticket, uint64_t bytes) {
  if (ticket == nullptr) return;
  ++ticket->in_flight;
  ticket->bytes_in_flight += bytes;
}

void Finish(WireTicket* ticket, uint64_t bytes, const absl::Status& status) {
  if (ticket == nullptr) return;
  --ticket->in_flight;
  ticket->bytes_in_flight -= bytes;
  if (!status.ok()) Fail(status, ticket);
}

void Send(Endpoint* endpoint, Message message, const Header& header, const void* data, size_t bytes,
          WireTicket* ticket) {
  Operation* const operation = NewOperation(endpoint, bytes, ticket);
  operation->frame = {message, sizeof(Header)};
  operation->put.header.base = header;
  if (message == kHello) {
    operation->payload.assign(static_cast<const char*>(data), bytes);
    data = operation->payload.data();
  }
  operation->put.from[0] = {static_cast<const std::byte*>(data), bytes};
  operation->parts = 1;
  Launch(operation);
}

void SendPut(Endpoint* endpoint, const PutMessage& put, WireTicket* ticket) {
  Operation* const operation = NewOperation(endpoint, put.bytes, ticket);
  operation->frame = {kPut, static_cast<uint32_t>(put.header.Bytes())};
  operation->put = put;
  operation->parts = put.header.base.count;
  Launch(operation);
}

absl::StatusOr<std::unique_ptr<Endpoint>> UcxEndpoints::Open(const std::string& sealed) {
  const auto address = OpenAddress(sealed);
  if (!address.has_value()) return absl::InvalidArgumentError("not the address of a UCX process");
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->process = address->process;
  endpoint->waiting = &waiting_;
  endpoint->plane = plane_;
  endpoint->user = user_;
  if (host_ != nullptr) {
    auto channel = ChannelTo(sealed, *address, /*near=*/true);
    if (absl::IsResourceExhausted(channel.status())) return channel.status();
    if (channel.ok()) endpoint->channel = *std::move(channel);
    endpoint->near = endpoint->channel != nullptr;
    if (!endpoint->near) endpoint->why_far = std::string(channel.status().message());
    // Only now: what was opened is of the process that is alive.
    if (!processes_.Add(address->process, endpoint.get())) {
      endpoint->health = absl::UnavailableError("the peer's process has ended");
      endpoint->channel.reset();
      return endpoint;
    }
    if (endpoint->near) return endpoint;
  }
  if (!far_refused_.empty()) {
    processes_.Remove(endpoint.get());
    return absl::FailedPreconditionError(far_refused_);
  }
  if (host_ == nullptr) endpoint->why_far = "this process uses no shared memory";
  endpoint->why_no_fabric = WhyNoFabric(plane_->fabric(), address->fabric);
  absl::Status status;
  if (tcp_ != nullptr && !address->tcp.empty() && !(plane_->fabric() && address->fabric)) {
    auto channel = ChannelTo(sealed, *address, /*near=*/false);
    status = channel.status();
    if (status.ok()) {
      endpoint->channel = *std::move(channel);
      far_.push_back(endpoint.get());
      tcp_ended_ = 0;  // it may have ended already
    }
  } else {
    status = OpenInUcx(*address, endpoint.get());
    const bool watched = host_ != nullptr || !status.ok();
    if (!watched && !processes_.Add(address->process, endpoint.get())) {
      endpoint->health = absl::UnavailableError("the peer's process has ended");
    }
  }
  if (status.ok()) return endpoint;
  processes_.Remove(endpoint.get());
  return status;
}

absl::Status UcxEndpoints::OpenInUcx(const UcxAddress& address, Endpoint* endpoint) {
  const auto peer = plane_->Connect(address.worker);
  if (!peer.ok()) return peer.status();
  endpoint->ucx = *peer;
  in_ucx_.push_back(endpoint);
  ucx_losses_ = 0;  // it may be lost already
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<MessageChannel>> UcxEndpoints::ChannelTo(const std::string& sealed,
                                                                        const UcxAddress& address,
                                                                        bool near) {
  ForgetChannels();
  const auto found = channels_.find(sealed);
  if (found != channels_.end()) return found->second;
  if (near) {
    auto channel = host_->Connect(address.host);
    if (!channel.ok()) return channel.status();
    return channels_[sealed] = *std::move(channel);
  }
  auto channel = tcp_->Connect(address.tcp);
  if (!channel.ok()) return channel.status();
  return channels_[sealed] = *std::move(channel);
}

void UcxEndpoints::ForgetChannels() {
  std::erase_if(channels_, [](const auto& other) {
    const auto& [address, channel] = other;
    if (channel->ended()) return true;
    return channel.use_count() == 1 && HasEnded(OpenAddress(address)->process);
  });
}

bool UcxEndpoints::SendWaiting() {
  bool sent = false;
  for (Endpoint* const endpoint : waiting_) {
    auto& operations = endpoint->operations;
    while (!operations.empty() && Write(operations.front())) {
      Finish(operations.front().ticket, operations.front().bytes, absl::OkStatus());
      operations.pop_front();
      sent = true;
    }
  }
  if (!sent) return false;
  std::erase_if(waiting_, [](Endpoint* e) { return e->operations.empty(); });
  std::erase_if(leaving_, [this](const auto& endpoint) {
    if (!endpoint->operations.empty()) return false;
    Forget(endpoint.get());
    return true;
  });
  return true;
}

bool UcxEndpoints::AwaitRoom() {
  return std::all_of(waiting_.begin(), waiting_.end(), [](Endpoint* endpoint) {
    const Operation& next = endpoint->operations.front();
    size_t bytes = sizeof(Frame) + next.frame.header_bytes;
    for (size_t i = 0; i < next.parts; ++i) bytes += next.put.from[i].size();
    return endpoint->channel->AwaitRoom(bytes);
  });
}

void UcxEndpoints::LoseEnded() {
  for (void* const token : processes_.Ended()) ended_.push_back(static_cast<Endpoint*>(token));
  const bool some_left = tcp_ != nullptr && tcp_ended_ != tcp_->ended();
  const bool some_lost = !in_ucx_.empty() && ucx_losses_ != plane_->losses();
  if (ended_.empty() && !some_left && !some_lost) return;
  std::erase_if(ended_, [this](Endpoint* endpoint) {
    if (host_ != nullptr && host_->HasUnread(endpoint->process)) return false;
    endpoint->health = absl::UnavailableError("the peer's process has ended");
    Cut(endpoint);
    return true;
  });
  if (some_left) {
    tcp_ended_ = tcp_->ended();
    for (Endpoint* const endpoint : far_) {
      if (!endpoint->channel->ended() || !endpoint->health.ok()) continue;
      endpoint->health = absl::UnavailableError("peer lost: its connection has ended");
    }
  }
  if (some_lost) {
    ucx_losses_ = plane_->losses();
    for (Endpoint* const endpoint : in_ucx_) {
      if (endpoint->health.ok() && plane_->IsLost(endpoint->ucx)) endpoint->health = LostByUcx();
    }
  }
  std::erase_if(leaving_, [this](const auto& endpoint) {
    if (endpoint->health.ok()) return false;
    Forget(endpoint.get());
    return true;
  });
}

// Nothing refers to it any more, but for UCX.
void UcxEndpoints::Forget(Endpoint* endpoint) {
  processes_.Remove(endpoint);
  std::erase(ended_, endpoint);
  std::erase(waiting_, endpoint);
  std::erase(far_, endpoint);
  std::erase(in_ucx_, endpoint);
}

void UcxEndpoints::Close(std::unique_ptr<Endpoint> endpoint) {
  for (const auto& [id, wait] : endpoint->awaited) {
    Finish(wait.ticket, wait.bytes, absl::UnavailableError("the connection was closed"));
  }
  endpoint->awaited.clear();
  if (endpoint->channel != nullptr) {
    CloseInHost(std::move(endpoint));
  } else {
    CloseInUcx(std::move(endpoint));
  }
}

// The target holds a connection until it hears kBye: it is not to be lost for lack of room.
void UcxEndpoints::CloseInHost(std::unique_ptr<Endpoint> endpoint) {
  Abandon(endpoint.get());
  std::erase_if(endpoint->operations, [](const Operation& o) { return o.frame.message != kBye; });
  if (!endpoint->operations.empty()) {
    leaving_.push_back(std::move(endpoint));
    return;
  }
  Forget(endpoint.get());
  const bool lost = !endpoint->health.ok();
  endpoint.reset();
  if (lost) ForgetChannels();
}

// What is not on its way by RMA goes on in the plane, without this. Puts that UCX has not confirmed
// do not.
void UcxEndpoints::CloseInUcx(std::unique_ptr<Endpoint> endpoint) {
  Forget(endpoint.get());
  const bool lost = endpoint->ucx != nullptr && plane_->IsLost(endpoint->ucx);
  const bool unconfirmed = RmaPending(*endpoint);
  if (lost || unconfirmed) {
    Cut(endpoint.get());
    const bool ended = AwaitRma(endpoint.get());
    if (unconfirmed && ended && !lost) TellCut(*endpoint);
  }
  for (Operation& operation : endpoint->operations) plane_->TakeOver(operation.in_ucx, nullptr);
  Abandon(endpoint.get());
  endpoint->imports.clear();
  if (endpoint->ucx != nullptr) plane_->Release(endpoint->ucx);
}

// Over shared memory the target cannot see that this process's queue pair is gone. Without this
// message it keeps the blocks of the connection's grants in quarantine until this process ends; so
// it does if the message cannot be sent.
void UcxEndpoints::TellCut(const Endpoint& endpoint) {
  const auto peer = plane_->Connect(plane_->AddressOf(endpoint.ucx));
  if (!peer.ok()) return;
  Endpoint again;
  again.ucx = *peer;
  again.plane = plane_;
  again.user = user_;
  Send(&again, kBye, {.connection = endpoint.connection, .refused = kCutOff}, nullptr, 0, nullptr);
  for (Operation& operation : again.operations) plane_->TakeOver(operation.in_ucx, nullptr);
  plane_->Release(*peer);
}

bool UcxEndpoints::AwaitRma(Endpoint* endpoint) {
  const auto ended = [&] {
    return std::none_of(endpoint->operations.begin(), endpoint->operations.end(),
                        [](const Operation& operation) { return operation.by_rma; });
  };
  const auto until = std::chrono::steady_clock::now() + kCutMax;
  while (!ended() && std::chrono::steady_clock::now() < until) plane_->Progress(user_, 1);
  return ended();
}

bool UcxEndpoints::Cut(Endpoint* endpoint) {
  return endpoint->ucx == nullptr || endpoint->plane->Cut(endpoint->ucx);
}

bool UcxEndpoints::SettleRma(Endpoint* endpoint) {
  if (!RmaPending(*endpoint)) return true;
  if (plane_->IsLost(endpoint->ucx)) return false;
  if (endpoint->rma_unflushed) FlushRma(endpoint, nullptr, 0);
  const auto until = std::chrono::steady_clock::now() + kSettleMax;
  while (endpoint->rma_flushes > 0 && std::chrono::steady_clock::now() < until) {
    plane_->Progress(user_, 1);
  }
  return !RmaPending(*endpoint);
}

}  // namespace skein::engine
