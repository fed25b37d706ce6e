#include "engine/transport/ucx/ucx_rma.h"

#include <sstream>

#include "engine/transport/ucx/ucx_endpoint.h"

namespace skein::engine {
namespace {

// UCX reads a key without looking for its end: 64 memory domains, each of a length byte and so
// many bytes.
constexpr size_t kKeyBytesMax = 64 * 256;

void AfterFlush(Endpoint* endpoint, uint64_t grant, bool ok) {
  // An endpoint that failed says nothing more; the target notices its end.
  if (grant == 0 || !ok) return;
  Send(endpoint, kWithdrawn, {.connection = endpoint->connection, .grant = grant}, nullptr, 0,
       nullptr);
}

}  // namespace

std::unique_ptr<RmaMemory> RmaMemory::Map(UcxPlane* plane, void* base, size_t bytes) {
  const UcxPlane::Lock lock = plane->Hold();
  ucp_context_h const context = plane->context();
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = base;
  params.length = bytes;
  params.flags = base == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
  ucp_mem_h memory = nullptr;
  if (ucp_mem_map(context, &params, &memory) != UCS_OK) return nullptr;
  std::unique_ptr<RmaMemory> mapped(new RmaMemory(plane, memory));
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

RemoteKey UnpackRemoteKey(UcxPlane* plane, PlanePeer* peer, std::string_view packed,
                          uint64_t address) {
  const UcxPlane::Lock lock = plane->Hold();
  ucp_ep_h const ep = UcxPlane::EndpointOf(peer);
  if (ep == nullptr || packed.empty() || packed.size() > kKeyBytesMax) return nullptr;
  std::string padded(packed);
  padded.resize(packed.size() + kKeyBytesMax, '\0');
  ucp_rkey_h unpacked = nullptr;
  if (ucp_ep_rkey_unpack(ep, padded.data(), &unpacked) != UCS_OK) return nullptr;
  RemoteKey key(unpacked, {plane});
  void* mapped = nullptr;
  if (ucp_rkey_ptr(unpacked, address, &mapped) == UCS_OK) return key;
  return HasReliableLane(plane->InfoOf(peer)) ? std::move(key) : nullptr;
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
  operation->by_rma = true;
  endpoint->rma_unflushed = true;
  Launched(operation,
           endpoint->plane->Put(endpoint->user, endpoint->ucx, {piece.local, piece.bytes},
                                piece.remote, key, operation));
}

bool RmaPending(const Endpoint& endpoint) {
  return endpoint.rma_unflushed || endpoint.rma_flushes > 0;
}

void FlushRma(Endpoint* endpoint, WireTicket* ticket, uint64_t grant) {
  Operation* const operation = NewOperation(endpoint, 0, ticket);
  operation->by_rma = operation->flushes = true;
  operation->acknowledges = grant;
  const auto started = endpoint->plane->Flush(endpoint->user, endpoint->ucx, operation);
  endpoint->rma_unflushed = started.how == UcxPlane::How::kFailed;
  if (started.how == UcxPlane::How::kUnderWay) ++endpoint->rma_flushes;
  Launched(operation, started);
  if (started.how != UcxPlane::How::kUnderWay) {
    AfterFlush(endpoint, grant, started.how == UcxPlane::How::kDone);
  }
}

void EndFlush(Operation* operation, bool ok) {
  Endpoint* const endpoint = operation->endpoint;
  const uint64_t grant = operation->acknowledges;
  --endpoint->rma_flushes;
  EndOperation(operation, ok);
  AfterFlush(endpoint, grant, ok);
}

}  // namespace skein::engine
