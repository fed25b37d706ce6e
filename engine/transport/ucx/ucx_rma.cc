#include "engine/transport/ucx/ucx_rma.h"

#include <sstream>

#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/ucx/ucx_context.h"

namespace skein::engine {
namespace {

// UCX reads a key without looking for its end: 64 memory domains, each of a length byte and so
// many bytes.
constexpr size_t kKeyBytesMax = 64 * 256;

ucp_request_param_t ParamsOf(Operation* operation, ucp_send_nbx_callback_t callback) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = callback;
  params.user_data = operation;
  return params;
}

void AfterFlush(Endpoint* endpoint, uint64_t grant, ucs_status_t status) {
  // An endpoint that failed says nothing more; the target notices its end.
  if (grant == 0 || status != UCS_OK) return;
  Send(endpoint, kWithdrawn, {.connection = endpoint->connection, .grant = grant}, nullptr, 0,
       nullptr);
}

void OnFlushed(void* request, ucs_status_t status, void* user_data) {
  const auto* const operation = static_cast<Operation*>(user_data);
  Endpoint* const endpoint = operation->endpoint;
  const uint64_t grant = operation->acknowledges;
  --endpoint->rma_flushes;
  EndOperation(request, status, user_data);
  AfterFlush(endpoint, grant, status);
}

}  // namespace

std::unique_ptr<RmaMemory> RmaMemory::Map(ucp_context_h context, void* base, size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = base;
  params.length = bytes;
  params.flags = base == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
  ucp_mem_h memory = nullptr;
  if (ucp_mem_map(context, &params, &memory) != UCS_OK) return nullptr;
  std::unique_ptr<RmaMemory> mapped(new RmaMemory(context, memory));
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  if (ucp_mem_query(memory, &attributes) != UCS_OK) return nullptr;
  mapped->base_ = static_cast<std::byte*>(attributes.address);
  void* packed = nullptr;
  size_t packed_bytes = 0;
  if (ucp_rkey_pack(context, memory, &packed, &packed_bytes) != UCS_OK) return nullptr;
  mapped->key_.assign(static_cast<const char*>(packed), packed_bytes);
  ucp_rkey_buffer_release(packed);
  return mapped;
}

RemoteKey UnpackRemoteKey(ucp_ep_h ep, std::string_view packed, uint64_t address) {
  if (packed.empty() || packed.size() > kKeyBytesMax) return nullptr;
  std::string padded(packed);
  padded.resize(packed.size() + kKeyBytesMax, '\0');
  ucp_rkey_h unpacked = nullptr;
  if (ucp_ep_rkey_unpack(ep, padded.data(), &unpacked) != UCS_OK) return nullptr;
  RemoteKey key(unpacked);
  void* mapped = nullptr;
  if (ucp_rkey_ptr(unpacked, address, &mapped) == UCS_OK) return key;
  return HasReliableLane(InfoOf(ep)) ? std::move(key) : nullptr;
}

// Lanes are listed by number, "lane[1]:  4:rc_mlx5/mlx5_0:1 ..."; then, for each that can put,
// "put[1]: 0..<short>..".
bool HasReliableLane(const std::string& info) {
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    const size_t lane = line.find("lane[");
    if (lane == std::string::npos || line.find(":rc_", lane) == std::string::npos) continue;
    const size_t number = lane + 4;
    const std::string put = "put" + line.substr(number, line.find(']', number) + 1 - number) + ":";
    if (info.find(put) != std::string::npos) return true;
  }
  return false;
}

void PutByRma(Endpoint* endpoint, const WirePiece& piece, ucp_rkey_h key, WireTicket* ticket) {
  Operation* const operation = NewOperation(endpoint, piece.bytes, ticket);
  const ucp_request_param_t params = ParamsOf(operation, EndOperation);
  endpoint->rma_unflushed = true;
  Launched(operation,
           ucp_put_nbx(endpoint->ep, piece.local, piece.bytes, piece.remote, key, &params));
}

bool RmaPending(const Endpoint& endpoint) {
  return endpoint.rma_unflushed || endpoint.rma_flushes > 0;
}

void FlushRma(Endpoint* endpoint, WireTicket* ticket, uint64_t grant) {
  Operation* const operation = NewOperation(endpoint, 0, ticket);
  operation->acknowledges = grant;
  const ucp_request_param_t params = ParamsOf(operation, OnFlushed);
  const ucs_status_ptr_t request = ucp_ep_flush_nbx(endpoint->ep, &params);
  endpoint->rma_unflushed = UCS_PTR_IS_ERR(request);
  if (UCS_PTR_IS_PTR(request)) ++endpoint->rma_flushes;
  Launched(operation, request);
  if (!UCS_PTR_IS_PTR(request)) AfterFlush(endpoint, grant, UCS_PTR_STATUS(request));
}

}  // namespace skein::engine
