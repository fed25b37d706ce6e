#include "engine/transport/ucx/ucx_endpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/ucx/ucx_address.h"
#include "engine/ucx/ucx_context.h"

namespace skein::engine {
namespace {

constexpr auto kCloseMax = std::chrono::milliseconds(500);

void Fail(const absl::Status& status, WireTicket* ticket) {
  if (ticket->error.ok()) ticket->error = status;
}

absl::Status Lost(ucs_status_t status) {
  if (status == UCS_OK) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("peer lost: ", ucs_status_string(status)));
}

void OnEndpointError(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<Endpoint*>(argument)->health = Lost(status);
}

// False: no room in the ring.
bool Write(const Operation& operation) {
  const Frame frame = {operation.message, static_cast<uint32_t>(operation.header_bytes)};
  std::array<std::span<const std::byte>, 2 + kFragmentsMax> parts;
  parts[0] = std::as_bytes(std::span(&frame, 1));
  parts[1] = {reinterpret_cast<const std::byte*>(&operation.put.header), operation.header_bytes};
  for (size_t i = 0; i < operation.parts; ++i) {
    const auto& [data, bytes] = operation.put.from[i];
    parts[2 + i] = {static_cast<const std::byte*>(data), bytes};
  }
  return operation.endpoint->channel->Write(std::span(parts).first(2 + operation.parts));
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
  if (endpoint->ep == nullptr) {
    if (operation->ticket != nullptr) Fail(endpoint->health, operation->ticket);
    return;
  }
  const bool is_put = operation->message == kPut;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_DATATYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.datatype = is_put ? ucp_datatype_t{UCP_DATATYPE_IOV} : ucp_dt_make_contig(1);
  params.cb.send = EndOperation;
  params.user_data = operation;
  const auto& from = operation->put.from;
  Launched(operation,
           ucp_am_send_nbx(endpoint->ep, operation->message, &operation->put.header,
                           operation->header_bytes, is_put ? from.data() : from[0].buffer,
                           is_put ? operation->parts : from[0].length, &params));
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
  operation->acknowledges = 0;
  return &*operation;
}

void Launched(Operation* operation, ucs_status_ptr_t request) {
  Endpoint* const endpoint = operation->endpoint;
  if (UCS_PTR_IS_PTR(request)) {
    Begin(operation->ticket, operation->bytes);
    endpoint->operations.splice(endpoint->operations.end(), endpoint->spare, operation->self);
  } else if (UCS_PTR_IS_ERR(request) && operation->ticket != nullptr) {
    Fail(Lost(UCS_PTR_STATUS(request)), operation->ticket);
  }
}

void EndOperation(void* request, ucs_status_t status, void* user_data) {
  auto* const operation = static_cast<Operation*>(user_data);
  Finish(operation->ticket, operation->bytes, Lost(status));
  operation->endpoint->operations.erase(operation->self);
  ucp_request_free(request);
}

std::string InfoOf(ucp_ep_h ep) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  ucp_ep_print_info(ep, stream);
  std::fclose(stream);
  const std::string info(text, bytes);
  std::free(text);
  return info;
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
  operation->message = message;
  operation->put.header.base = header;
  operation->header_bytes = sizeof(Header);
  if (message == kHello) {
    operation->payload.assign(static_cast<const char*>(data), bytes);
    data = operation->payload.data();
  }
  operation->put.from[0] = {const_cast<void*>(data), bytes};
  operation->parts = 1;
  Launch(operation);
}

void SendPut(Endpoint* endpoint, const PutMessage& put, WireTicket* ticket) {
  Operation* const operation = NewOperation(endpoint, put.bytes, ticket);
  operation->message = kPut;
  operation->put = put;
  operation->header_bytes = put.header.Bytes();
  operation->parts = put.header.base.count;
  Launch(operation);
}

absl::StatusOr<std::unique_ptr<Endpoint>> UcxEndpoints::Open(const std::string& sealed) {
  const auto address = OpenAddress(sealed);
  if (!address.has_value()) return absl::InvalidArgumentError("not the address of a UCX process");
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->process = address->process;
  endpoint->waiting = &waiting_;
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
  if (host_ == nullptr) endpoint->why_far = "this process uses no shared memory";
  endpoint->why_no_fabric = WhyNoFabric(fabric_, address->fabric);
  absl::Status status;
  if (tcp_ != nullptr && !address->tcp.empty() && !(fabric_ && address->fabric)) {
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
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = endpoint;
  return FromUcs(ucp_ep_create(worker_, &params, &endpoint->ep), "ucp_ep_create");
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
    size_t bytes = sizeof(Frame) + next.header_bytes;
    for (size_t i = 0; i < next.parts; ++i) bytes += next.put.from[i].length;
    return endpoint->channel->AwaitRoom(bytes);
  });
}

void UcxEndpoints::LoseEnded() {
  for (void* const token : processes_.Ended()) ended_.push_back(static_cast<Endpoint*>(token));
  const bool some_left = tcp_ != nullptr && tcp_ended_ != tcp_->ended();
  if (ended_.empty() && !some_left) return;
  std::erase_if(ended_, [this](Endpoint* endpoint) {
    if (host_ != nullptr && host_->HasUnread(endpoint->process)) return false;
    endpoint->health = absl::UnavailableError("the peer's process has ended");
    return true;
  });
  if (some_left) {
    tcp_ended_ = tcp_->ended();
    for (Endpoint* const endpoint : far_) {
      if (!endpoint->channel->ended() || !endpoint->health.ok()) continue;
      endpoint->health = absl::UnavailableError("peer lost: its connection has ended");
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
  std::erase_if(endpoint->operations, [](const Operation& o) { return o.message != kBye; });
  if (!endpoint->operations.empty()) {
    leaving_.push_back(std::move(endpoint));
    return;
  }
  Forget(endpoint.get());
  const bool lost = !endpoint->health.ok();
  endpoint.reset();
  if (lost) ForgetChannels();
}

void UcxEndpoints::CloseInUcx(std::unique_ptr<Endpoint> endpoint) {
  Forget(endpoint.get());
  const auto until = std::chrono::steady_clock::now() + kCloseMax;
  const auto closed = [&] { return Cut(endpoint.get()) && endpoint->operations.empty(); };
  while (!closed() && std::chrono::steady_clock::now() < until) ucp_worker_progress(worker_);
  const bool in_time = closed();
  if (UCS_PTR_IS_PTR(endpoint->closing)) ucp_request_free(endpoint->closing);
  endpoint->closing = nullptr;
  if (!in_time) {
    Abandon(endpoint.get());
    abandoned_.push_back(std::move(endpoint));
  }
}

bool UcxEndpoints::Cut(Endpoint* endpoint) {
  if (endpoint->ep != nullptr) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    endpoint->closing = ucp_ep_close_nbx(std::exchange(endpoint->ep, nullptr), &params);
  }
  return !UCS_PTR_IS_PTR(endpoint->closing) ||
         ucp_request_check_status(endpoint->closing) != UCS_INPROGRESS;
}

bool UcxEndpoints::SettleRma(Endpoint* endpoint) {
  if (endpoint->rma_unflushed) FlushRma(endpoint, nullptr, 0);
  const auto until = std::chrono::steady_clock::now() + kCloseMax;
  while (endpoint->rma_flushes > 0 && std::chrono::steady_clock::now() < until) {
    ucp_worker_progress(worker_);
  }
  return !RmaPending(*endpoint) && endpoint->health.ok();
}

void UcxEndpoints::ForgetKeys() {
  for (const auto& endpoint : abandoned_) endpoint->imports.clear();
}

}  // namespace skein::engine
