#include "engine/transport/ucx_endpoint.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/transport/ucx_context.h"

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

void OnSent(void* request, ucs_status_t status, void* user_data) {
  auto* const operation = static_cast<Operation*>(user_data);
  Finish(operation->ticket, operation->bytes, Lost(status));
  operation->endpoint->operations.erase(operation->self);
  ucp_request_free(request);
}

void OnEndpointError(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<Endpoint*>(argument)->health = Lost(status);
}

Operation* SpareOperation(Endpoint* endpoint, uint64_t bytes, WireTicket* ticket) {
  if (endpoint->spare.empty()) endpoint->spare.emplace_back();
  const auto operation = endpoint->spare.begin();
  operation->endpoint = endpoint;
  operation->self = operation;
  operation->ticket = ticket;
  operation->bytes = bytes;
  return &*operation;
}

// Sends the header and `count` items of `data`.
void Launch(Operation* operation, Message message, size_t header_bytes, const void* data,
            size_t count, ucp_datatype_t datatype) {
  Endpoint* const endpoint = operation->endpoint;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_DATATYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.datatype = datatype;
  params.cb.send = OnSent;
  params.user_data = operation;
  const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint->ep, message, &operation->put.header,
                                                   header_bytes, data, count, &params);
  if (UCS_PTR_IS_PTR(request)) {
    Begin(operation->ticket, operation->bytes);
    endpoint->operations.splice(endpoint->operations.end(), endpoint->spare, operation->self);
  } else if (UCS_PTR_IS_ERR(request) && operation->ticket != nullptr) {
    Fail(Lost(UCS_PTR_STATUS(request)), operation->ticket);
  }
}

void Abandon(Endpoint* endpoint) {
  for (Operation& operation : endpoint->operations) {
    Finish(operation.ticket, operation.bytes, absl::UnavailableError("the peer does not answer"));
    operation.ticket = nullptr;
  }
}

}  // namespace

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
  Operation* const operation = SpareOperation(endpoint, bytes, ticket);
  operation->put.header.base = header;
  if (message == kHello) {
    operation->payload.assign(static_cast<const char*>(data), bytes);
    data = operation->payload.data();
  }
  Launch(operation, message, sizeof(Header), data, bytes, ucp_dt_make_contig(1));
}

void SendPut(Endpoint* endpoint, const PutMessage& put, WireTicket* ticket) {
  Operation* const operation = SpareOperation(endpoint, put.bytes, ticket);
  operation->put = put;
  Launch(operation, kPut, put.header.Bytes(), operation->put.from.data(), put.header.base.count,
         UCP_DATATYPE_IOV);
}

absl::StatusOr<std::unique_ptr<Endpoint>> UcxEndpoints::Open(const std::string& worker_address) {
  auto endpoint = std::make_unique<Endpoint>();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnEndpointError;
  params.err_handler.arg = endpoint.get();
  auto status = FromUcs(ucp_ep_create(worker_, &params, &endpoint->ep), "ucp_ep_create");
  if (!status.ok()) return status;
  return endpoint;
}

void UcxEndpoints::Close(std::unique_ptr<Endpoint> endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint->ep, &params);
  const auto until = std::chrono::steady_clock::now() + kCloseMax;
  const auto closing = [&] {
    return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
  };
  while ((closing() || !endpoint->operations.empty()) && std::chrono::steady_clock::now() < until) {
    ucp_worker_progress(worker_);
  }
  const bool closed = !closing() && endpoint->operations.empty();
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  for (const auto& [id, wait] : endpoint->awaited) {
    Finish(wait.ticket, wait.bytes, absl::UnavailableError("the connection was broken off"));
  }
  endpoint->awaited.clear();
  for (const Imported& imported : endpoint->imports) {
    if (imported.rkey != nullptr) ucp_rkey_destroy(imported.rkey);
  }
  endpoint->imports.clear();
  if (!closed) {
    Abandon(endpoint.get());
    abandoned_.push_back(std::move(endpoint));
  }
}

}  // namespace skein::engine
