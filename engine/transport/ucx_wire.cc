#include "engine/transport/ucx_wire.h"

#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

constexpr auto kCloseMax = std::chrono::milliseconds(500);

absl::Status FromUcs(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(text);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);  // all that concerns the peer
  }
}

struct Endpoint;

// One request under way; UCX carries its address to OnOperationEnd.
struct Operation {
  Endpoint* endpoint = nullptr;
  std::list<Operation>::iterator self;
  WireTicket* ticket = nullptr;
  uint64_t bytes = 0;
};

struct Endpoint {
  ucp_ep_h ep = nullptr;
  absl::Status health;
  std::vector<ucp_rkey_h> keys;
  std::list<Operation> operations;
  std::list<Operation> spare;  // one node: most operations end at once and leave it unused
};

void Fail(ucs_status_t status, WireTicket* ticket) {
  if (ticket->error.ok()) ticket->error = absl::UnavailableError(ucs_status_string(status));
}

void OnOperationEnd(void* request, ucs_status_t status, void* user_data) {
  auto* const operation = static_cast<Operation*>(user_data);
  WireTicket* const ticket = operation->ticket;
  --ticket->in_flight;
  ticket->bytes_in_flight -= operation->bytes;
  if (status != UCS_OK) Fail(status, ticket);
  operation->endpoint->operations.erase(operation->self);
  ucp_request_free(request);
}

void OnEndpointError(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<Endpoint*>(argument)->health =
      absl::UnavailableError(absl::StrCat("peer lost: ", ucs_status_string(status)));
}

// Large pages halve the cost of first touch and of copies; shared memory gives them only on
// request.
void AdviseHugePages(void* base, size_t bytes) { madvise(base, bytes, MADV_HUGEPAGE); }

class UcxWire : public Wire {
 public:
  UcxWire(ucp_context_h context, ucp_worker_h worker) : context_(context), worker_(worker) {}

  ~UcxWire() override {
    while (!endpoints_.empty()) Close(endpoints_.begin()->first);
    for (const auto& [handle, memory] : mappings_) ucp_mem_unmap(context_, memory);
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override;
  void Unmap(uint64_t mapping) override;
  absl::StatusOr<uint64_t> Open(const std::string& worker_address) override;
  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override;
  void Start(uint64_t endpoint, const WireOp& op, WireTicket* ticket) override;
  bool Progress() override { return ucp_worker_progress(worker_) != 0; }
  std::optional<int> Arm() override;
  absl::Status Health(uint64_t endpoint) override { return endpoints_.at(endpoint)->health; }
  std::string Lanes(uint64_t endpoint) override;
  void Close(uint64_t endpoint) override;

 private:
  ucs_status_ptr_t Launch(const Endpoint& endpoint, const WireOp& op, Operation* operation);
  void Abandon(Endpoint* endpoint);

  const ucp_context_h context_;
  const ucp_worker_h worker_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, ucp_mem_h> mappings_;
  std::map<uint64_t, std::unique_ptr<Endpoint>> endpoints_;
  // Endpoints that UCX did not close in time. UCX may still call back into them, so they live as
  // long as the worker.
  std::vector<std::unique_ptr<Endpoint>> abandoned_;
  std::list<WireTicket> abandoned_tickets_;
};

absl::StatusOr<WireMapping> UcxWire::Map(void* base, size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = base;
  params.length = bytes;
  params.flags = base == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
  ucp_mem_h memory = nullptr;
  auto status = FromUcs(ucp_mem_map(context_, &params, &memory), "ucp_mem_map");
  if (!status.ok()) return status;
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  void* key = nullptr;
  size_t key_bytes = 0;
  status = FromUcs(ucp_mem_query(memory, &attributes), "ucp_mem_query");
  if (status.ok()) {
    status = FromUcs(ucp_rkey_pack(context_, memory, &key, &key_bytes), "ucp_rkey_pack");
  }
  if (!status.ok()) {
    ucp_mem_unmap(context_, memory);
    return status;
  }
  if (base == nullptr) AdviseHugePages(attributes.address, bytes);
  WireMapping mapping{next_handle_++, static_cast<std::byte*>(attributes.address),
                      std::string(static_cast<const char*>(key), key_bytes)};
  ucp_rkey_buffer_release(key);
  mappings_[mapping.handle] = memory;
  return mapping;
}

void UcxWire::Unmap(uint64_t mapping) {
  ucp_mem_unmap(context_, mappings_.at(mapping));
  mappings_.erase(mapping);
}

absl::StatusOr<uint64_t> UcxWire::Open(const std::string& worker_address) {
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
  const uint64_t handle = next_handle_++;
  endpoints_[handle] = std::move(endpoint);
  return handle;
}

absl::StatusOr<uint64_t> UcxWire::Import(uint64_t endpoint, const DescribedRegion& region) {
  Endpoint& target = *endpoints_.at(endpoint);
  ucp_rkey_h key = nullptr;
  auto status =
      FromUcs(ucp_ep_rkey_unpack(target.ep, region.key.data(), &key), "ucp_ep_rkey_unpack");
  if (!status.ok()) return status;
  target.keys.push_back(key);
  void* mapped = nullptr;
  if (ucp_rkey_ptr(key, region.address, &mapped) == UCS_OK) AdviseHugePages(mapped, region.bytes);
  return reinterpret_cast<uint64_t>(key);
}

ucs_status_ptr_t UcxWire::Launch(const Endpoint& endpoint, const WireOp& op, Operation* operation) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = OnOperationEnd;
  params.user_data = operation;
  const auto key = reinterpret_cast<ucp_rkey_h>(op.key);
  switch (op.kind) {
    case WireOpKind::kPut:
      return ucp_put_nbx(endpoint.ep, op.local, op.bytes, op.remote, key, &params);
    case WireOpKind::kGet:
      return ucp_get_nbx(endpoint.ep, op.local, op.bytes, op.remote, key, &params);
    case WireOpKind::kFlush:
      break;
  }
  return ucp_ep_flush_nbx(endpoint.ep, &params);
}

void UcxWire::Start(uint64_t endpoint, const WireOp& op, WireTicket* ticket) {
  Endpoint& target = *endpoints_.at(endpoint);
  if (target.spare.empty()) target.spare.emplace_back();
  const auto operation = target.spare.begin();
  *operation = {&target, operation, ticket, op.bytes};
  const ucs_status_ptr_t request = Launch(target, op, &*operation);
  if (UCS_PTR_IS_PTR(request)) {
    ++ticket->in_flight;
    ticket->bytes_in_flight += op.bytes;
    target.operations.splice(target.operations.end(), target.spare, operation);
  } else if (UCS_PTR_IS_ERR(request)) {
    Fail(UCS_PTR_STATUS(request), ticket);
  }
}

std::optional<int> UcxWire::Arm() {
  if (ucp_worker_arm(worker_) != UCS_OK) return std::nullopt;
  int fd = -1;
  if (ucp_worker_get_efd(worker_, &fd) != UCS_OK) return -1;
  return fd;
}

std::string UcxWire::Lanes(uint64_t endpoint) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  ucp_ep_print_info(endpoints_.at(endpoint)->ep, stream);
  std::fclose(stream);
  std::string lanes = LanesOfEndpointInfo(std::string(text, bytes));
  std::free(text);
  return lanes;
}

// Forced: nothing is asked of the peer, and what was under way ends with an error in the next
// rounds of progress. Transfers that ended OK were flushed, so nothing of theirs is lost.
void UcxWire::Close(uint64_t endpoint) {
  std::unique_ptr<Endpoint> target = std::move(endpoints_.at(endpoint));
  endpoints_.erase(endpoint);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(target->ep, &params);
  const auto until = std::chrono::steady_clock::now() + kCloseMax;
  const auto closing = [&] {
    return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
  };
  while ((closing() || !target->operations.empty()) && std::chrono::steady_clock::now() < until) {
    ucp_worker_progress(worker_);
  }
  const bool closed = !closing() && target->operations.empty();
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  if (!closed) {
    Abandon(target.get());
    abandoned_.push_back(std::move(target));
    return;
  }
  for (ucp_rkey_h key : target->keys) ucp_rkey_destroy(key);
}

void UcxWire::Abandon(Endpoint* endpoint) {
  for (Operation& operation : endpoint->operations) {
    operation.ticket->in_flight = 0;
    operation.ticket->bytes_in_flight = 0;
    Fail(UCS_ERR_ENDPOINT_TIMEOUT, operation.ticket);
    operation.ticket = &abandoned_tickets_.emplace_back();
    operation.ticket->in_flight = 1;
    operation.ticket->bytes_in_flight = operation.bytes;
  }
}

// Whether a list such as UCX_TLS lets UCX use shared memory at all.
bool MayUseSharedMemory(const UcxOptions& options) {
  const char* const environment = std::getenv("UCX_TLS");
  const std::string tls =
      !options.tls.empty() ? options.tls : (environment == nullptr ? "all" : environment);
  for (const char* name : {"all", "shm", "sm", "mm", "posix", "sysv", "^"}) {
    if (tls.find(name) != std::string::npos) return true;
  }
  return false;
}

absl::Status Configure(const UcxOptions& options, ucp_config_t* config) {
  std::vector<std::pair<const char*, std::string>> settings = {
      {"KEEPALIVE_INTERVAL", absl::StrCat(options.keepalive.count(), "ms")}};
  if (!options.tls.empty()) settings.emplace_back("TLS", options.tls);
  // UCX_POSIX_ERROR_HANDLING and UCX_SYSV_ERROR_HANDLING: both share this name inside UCX.
  if (MayUseSharedMemory(options)) settings.emplace_back("MM_ERROR_HANDLING", "y");
  for (const auto& [name, value] : settings) {
    auto status = FromUcs(ucp_config_modify(config, name, value.c_str()), name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ucp_context_h> MakeContext(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  auto status = FromUcs(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  if (!status.ok()) return status;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  status = Configure(options, config);
  if (status.ok()) status = FromUcs(ucp_init(&params, config, &context), "ucp_init");
  ucp_config_release(config);
  if (!status.ok()) return status;
  return context;
}

absl::StatusOr<ucp_worker_h> MakeWorker(ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // WireTransport's lock
  ucp_worker_h worker = nullptr;
  auto status = FromUcs(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
  if (!status.ok()) return status;
  return worker;
}

}  // namespace

absl::StatusOr<UcxWireAndAddress> MakeUcxWire(const UcxOptions& options) {
  auto context = MakeContext(options);
  if (!context.ok()) return context.status();
  auto worker = MakeWorker(*context);
  if (!worker.ok()) {
    ucp_cleanup(*context);
    return worker.status();
  }
  UcxWireAndAddress made{std::make_unique<UcxWire>(*context, *worker), ""};
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  auto status =
      FromUcs(ucp_worker_get_address(*worker, &address, &bytes), "ucp_worker_get_address");
  if (!status.ok()) return status;
  made.worker_address.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(*worker, address);
  return made;
}

std::string LanesOfEndpointInfo(const std::string& info) {
  std::vector<std::string> names;
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    const size_t lane = line.find("lane[");
    const size_t colon =
        lane == std::string::npos ? lane : line.find(':', line.find(']', lane) + 2);
    const size_t slash = colon == std::string::npos ? colon : line.find('/', colon);
    if (slash == std::string::npos) continue;
    std::string name = line.substr(colon + 1, slash - colon - 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string joined;
  for (const std::string& name : names) absl::StrAppend(&joined, joined.empty() ? "" : "+", name);
  return joined;
}

}  // namespace skein::engine
