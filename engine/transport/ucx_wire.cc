#include "engine/transport/ucx_wire.h"

#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::engine {
namespace {

// Why not ucp_put everywhere: over tcp, and for memory that a peer cannot map, UCX 1.13 emulates
// it, and its emulation aborts the TARGET process when the source dies before an acknowledgement is
// sent (rma_sw.c returns the send's error to a caller that calls ucs_fatal). So memory that can be
// mapped is written by memcpy, and the rest by messages of our own, whose failures come back to us
// and whose places the target checks against its regions.
enum Message : unsigned { kHello = 1, kPut, kFlush, kGet, kAnswer, kBye };

// Every message's header; what a message does not use is zero.
//   kHello   connection                             data: the source's worker address
//   kPut     connection, mapping, address           data: the bytes
//   kFlush   connection, id, count                  answered when `count` puts of the connection
//   were applied kGet     connection, id, mapping, address, count = bytes kAnswer  connection, id,
//   refused                data: the bytes of a get kBye     connection
struct Header {
  uint64_t connection = 0;
  uint64_t id = 0;
  uint64_t mapping = 0;
  uint64_t address = 0;
  uint64_t count = 0;
  uint64_t refused = 0;
};

constexpr size_t kMessageBytesMax =
    60 << 10;  // one tcp segment of UCX, so that it is not assembled first
constexpr size_t kInboundMax = 1024;
constexpr auto kCloseMax = std::chrono::milliseconds(500);

struct Endpoint;

// One send under way; UCX carries its address to OnSent, and reads the header and payload until
// then.
struct Operation {
  Endpoint* endpoint = nullptr;
  std::list<Operation>::iterator self;
  WireTicket* ticket = nullptr;  // null: nobody waits
  uint64_t bytes = 0;
  Header header;
  std::string payload;  // if the data is not somebody else's
};

struct Awaited {
  WireTicket* ticket = nullptr;
  std::byte* local = nullptr;  // a get's
  uint64_t bytes = 0;
  uint64_t puts_flushed = 0;  // a flush's
};

struct Imported {
  ucp_rkey_h rkey = nullptr;
  std::byte* mapped = nullptr;  // the region in this process, if it can be mapped
  uint64_t address = 0;
  uint64_t mapping = 0;
};

// A connection, at its source (which opened it) or at its target (where it carries the answers).
struct Endpoint {
  uint64_t connection = 0;
  ucp_ep_h ep = nullptr;
  absl::Status health;
  std::list<Operation> operations;
  std::list<Operation> spare;  // one node: most sends end at once and leave it unused
  // At the source:
  std::list<Imported> imports;
  std::map<uint64_t, Awaited> awaited;  // by id
  uint64_t puts_started = 0;
  uint64_t puts_flushed = 0;
  // At the target:
  uint64_t puts_applied = 0;
  bool refused = false;
  std::vector<std::pair<uint64_t, uint64_t>> flushes;  // count, id
};

struct Mapping {
  ucp_mem_h memory = nullptr;  // null: the caller's memory
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

void Fail(const absl::Status& status, WireTicket* ticket) {
  if (ticket->error.ok()) ticket->error = status;
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

// Fewer faults at first touch; shared memory gives large pages only on request, if at all.
void AdviseHugePages(void* base, size_t bytes) { madvise(base, bytes, MADV_HUGEPAGE); }

uint64_t RandomId() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// A region's key: the owner's mapping, then UCX's key if the wire allocated the memory.
std::string PackKey(uint64_t mapping, std::string_view rkey) {
  std::string key(sizeof mapping, '\0');
  std::memcpy(key.data(), &mapping, sizeof mapping);
  return key.append(rkey);
}

class UcxWire : public Wire {
 public:
  explicit UcxWire(const UcxContext& context);
  ~UcxWire() override;

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override;
  void Unmap(uint64_t mapping) override;
  absl::StatusOr<uint64_t> Open(const std::string& worker_address) override;
  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override;
  void Start(uint64_t endpoint, const WireOp& op, WireTicket* ticket) override;
  bool Progress() override;
  std::optional<int> Arm() override;
  absl::Status Health(uint64_t endpoint) override { return endpoints_.at(endpoint)->health; }
  std::string Lanes(uint64_t endpoint) override;
  void Close(uint64_t endpoint) override;

 private:
  using Endpoints = std::map<uint64_t, std::unique_ptr<Endpoint>>;
  using Receive = void (UcxWire::*)(const Header& header, const std::byte* data, size_t bytes);

  template <Receive receive>
  static ucs_status_t OnMessage(void* wire, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  template <Receive receive>
  void Subscribe(Message message);

  void OnHello(const Header& header, const std::byte* data, size_t bytes);
  void OnPut(const Header& header, const std::byte* data, size_t bytes);
  void OnFlush(const Header& header, const std::byte* data, size_t bytes);
  void OnGet(const Header& header, const std::byte* data, size_t bytes);
  void OnAnswer(const Header& header, const std::byte* data, size_t bytes);
  void OnBye(const Header& header, const std::byte* data, size_t bytes);

  absl::StatusOr<WireMapping> Allocate(size_t bytes);
  absl::StatusOr<std::unique_ptr<Endpoint>> MakeEndpoint(const std::string& worker_address);
  void Send(Endpoint* endpoint, Message message, const Header& header, const void* data,
            size_t bytes, WireTicket* ticket);
  void StartFlush(Endpoint* endpoint, WireTicket* ticket);
  void StartByMessages(Endpoint* endpoint, const WireOp& op, const Imported& place,
                       WireTicket* ticket);
  std::byte* Place(const Header& header, uint64_t bytes) const;
  Endpoint* Inbound(const Header& header);
  void AnswerFlushes(Endpoint* endpoint);
  void CloseLostInbound();
  void CloseEndpoint(std::unique_ptr<Endpoint> endpoint);
  void Abandon(Endpoint* endpoint);

  const ucp_context_h context_;
  const ucp_worker_h worker_;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, Mapping> mappings_;
  Endpoints endpoints_;  // opened here, by connection
  Endpoints inbound_;    // opened by peers, by connection
  // Endpoints that UCX did not close in time. UCX may still call back into them, so they live as
  // long as the worker.
  std::vector<std::unique_ptr<Endpoint>> abandoned_;
};

template <UcxWire::Receive receive>
ucs_status_t UcxWire::OnMessage(void* wire, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
  // We send nothing by rendezvous; a message that is not ours is dropped.
  if (header_bytes != sizeof(Header) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return UCS_OK;
  }
  Header copy;
  std::memcpy(&copy, header, sizeof copy);
  (static_cast<UcxWire*>(wire)->*receive)(copy, static_cast<const std::byte*>(data), bytes);
  return UCS_OK;
}

template <UcxWire::Receive receive>
void UcxWire::Subscribe(Message message) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = message;
  params.cb = OnMessage<receive>;
  params.arg = this;
  ucp_worker_set_am_recv_handler(worker_, &params);
}

UcxWire::UcxWire(const UcxContext& context) : context_(context.context), worker_(context.worker) {
  Subscribe<&UcxWire::OnHello>(kHello);
  Subscribe<&UcxWire::OnPut>(kPut);
  Subscribe<&UcxWire::OnFlush>(kFlush);
  Subscribe<&UcxWire::OnGet>(kGet);
  Subscribe<&UcxWire::OnAnswer>(kAnswer);
  Subscribe<&UcxWire::OnBye>(kBye);
}

UcxWire::~UcxWire() {
  while (!endpoints_.empty()) Close(endpoints_.begin()->first);
  while (!inbound_.empty()) CloseEndpoint(std::move(inbound_.extract(inbound_.begin()).mapped()));
  while (!mappings_.empty()) Unmap(mappings_.begin()->first);
  ucp_worker_destroy(worker_);
  ucp_cleanup(context_);
}

absl::StatusOr<WireMapping> UcxWire::Map(void* base, size_t bytes) {
  if (base == nullptr) return Allocate(bytes);
  const uint64_t handle = next_handle_++;
  mappings_[handle] = {nullptr, static_cast<std::byte*>(base), bytes};
  return WireMapping{handle, static_cast<std::byte*>(base), PackKey(handle, "")};
}

absl::StatusOr<WireMapping> UcxWire::Allocate(size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
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
  auto* const base = static_cast<std::byte*>(attributes.address);
  AdviseHugePages(base, bytes);
  const uint64_t handle = next_handle_++;
  mappings_[handle] = {memory, base, bytes};
  WireMapping mapping{handle, base,
                      PackKey(handle, std::string_view(static_cast<const char*>(key), key_bytes))};
  ucp_rkey_buffer_release(key);
  return mapping;
}

void UcxWire::Unmap(uint64_t mapping) {
  const auto found = mappings_.find(mapping);
  if (found->second.memory != nullptr) ucp_mem_unmap(context_, found->second.memory);
  mappings_.erase(found);
}

absl::StatusOr<std::unique_ptr<Endpoint>> UcxWire::MakeEndpoint(const std::string& worker_address) {
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

absl::StatusOr<uint64_t> UcxWire::Open(const std::string& worker_address) {
  auto endpoint = MakeEndpoint(worker_address);
  if (!endpoint.ok()) return endpoint.status();
  const uint64_t connection = RandomId();
  (*endpoint)->connection = connection;
  ucp_address_t* own = nullptr;
  size_t own_bytes = 0;
  auto status = FromUcs(ucp_worker_get_address(worker_, &own, &own_bytes), "own address");
  if (!status.ok()) {
    CloseEndpoint(*std::move(endpoint));
    return status;
  }
  Send(endpoint->get(), kHello, {.connection = connection}, own, own_bytes, nullptr);
  ucp_worker_release_address(worker_, own);
  endpoints_[connection] = *std::move(endpoint);
  return connection;
}

absl::StatusOr<uint64_t> UcxWire::Import(uint64_t endpoint, const DescribedRegion& region) {
  Imported imported;
  if (region.key.size() < sizeof imported.mapping) {
    return absl::InvalidArgumentError("transport description: not a UCX key");
  }
  imported.address = region.address;
  std::memcpy(&imported.mapping, region.key.data(), sizeof imported.mapping);
  const std::string rkey = region.key.substr(sizeof imported.mapping);
  Endpoint& target = *endpoints_.at(endpoint);
  void* mapped = nullptr;
  if (!rkey.empty() && ucp_ep_rkey_unpack(target.ep, rkey.data(), &imported.rkey) == UCS_OK &&
      ucp_rkey_ptr(imported.rkey, region.address, &mapped) == UCS_OK) {
    AdviseHugePages(mapped, region.bytes);
    imported.mapped = static_cast<std::byte*>(mapped);
  }
  target.imports.push_back(imported);
  return reinterpret_cast<uint64_t>(&target.imports.back());
}

// Payloads that UCX may read after this call are either the caller's until its ticket is done, or
// copied here.
void UcxWire::Send(Endpoint* endpoint, Message message, const Header& header, const void* data,
                   size_t bytes, WireTicket* ticket) {
  if (endpoint->spare.empty()) endpoint->spare.emplace_back();
  const auto operation = endpoint->spare.begin();
  operation->endpoint = endpoint;
  operation->self = operation;
  operation->ticket = ticket;
  operation->bytes = bytes;
  operation->header = header;
  if (message == kHello) {
    operation->payload.assign(static_cast<const char*>(data), bytes);
    data = operation->payload.data();
  }
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.cb.send = OnSent;
  params.user_data = &*operation;
  const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint->ep, message, &operation->header,
                                                   sizeof(Header), data, bytes, &params);
  if (UCS_PTR_IS_PTR(request)) {
    Begin(ticket, bytes);
    endpoint->operations.splice(endpoint->operations.end(), endpoint->spare, operation);
  } else if (UCS_PTR_IS_ERR(request) && ticket != nullptr) {
    Fail(Lost(UCS_PTR_STATUS(request)), ticket);
  }
}

void UcxWire::Start(uint64_t endpoint, const WireOp& op, WireTicket* ticket) {
  Endpoint* const target = endpoints_.at(endpoint).get();
  if (op.kind == WireOpKind::kFlush) return StartFlush(target, ticket);
  const Imported& place = *reinterpret_cast<const Imported*>(op.key);
  if (place.mapped == nullptr) return StartByMessages(target, op, place, ticket);
  std::byte* const remote = place.mapped + (op.remote - place.address);
  if (op.kind == WireOpKind::kPut) std::memcpy(remote, op.local, op.bytes);
  if (op.kind == WireOpKind::kGet) std::memcpy(op.local, remote, op.bytes);
}

void UcxWire::StartFlush(Endpoint* endpoint, WireTicket* ticket) {
  if (endpoint->puts_started == endpoint->puts_flushed) return;
  const uint64_t id = next_handle_++;
  endpoint->awaited[id] = {ticket, nullptr, 0, endpoint->puts_started};
  Begin(ticket, 0);
  Send(endpoint, kFlush,
       {.connection = endpoint->connection, .id = id, .count = endpoint->puts_started}, nullptr, 0,
       ticket);
}

void UcxWire::StartByMessages(Endpoint* endpoint, const WireOp& op, const Imported& place,
                              WireTicket* ticket) {
  for (uint64_t offset = 0; offset < op.bytes; offset += kMessageBytesMax) {
    const uint64_t bytes = std::min<uint64_t>(kMessageBytesMax, op.bytes - offset);
    Header header{.connection = endpoint->connection,
                  .mapping = place.mapping,
                  .address = op.remote + offset};
    if (op.kind == WireOpKind::kPut) {
      ++endpoint->puts_started;
      Send(endpoint, kPut, header, op.local + offset, bytes, ticket);
    } else {
      header.id = next_handle_++;
      header.count = bytes;
      endpoint->awaited[header.id] = {ticket, op.local + offset, bytes, 0};
      Begin(ticket, bytes);
      Send(endpoint, kGet, header, nullptr, 0, ticket);
    }
  }
}

// --- At the target. ---

Endpoint* UcxWire::Inbound(const Header& header) {
  const auto found = inbound_.find(header.connection);
  return found == inbound_.end() ? nullptr : found->second.get();
}

// Where a message may read or write; null if that is not inside a region.
std::byte* UcxWire::Place(const Header& header, uint64_t bytes) const {
  const auto found = mappings_.find(header.mapping);
  if (found == mappings_.end()) return nullptr;
  const uint64_t offset = header.address - reinterpret_cast<uint64_t>(found->second.base);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return found->second.base + offset;
}

void UcxWire::OnHello(const Header& header, const std::byte* data, size_t bytes) {
  if (bytes == 0 || inbound_.size() >= kInboundMax || inbound_.contains(header.connection)) return;
  auto endpoint = MakeEndpoint(std::string(reinterpret_cast<const char*>(data), bytes));
  if (!endpoint.ok()) return;  // the source's flush stays unanswered, and its timeout says so
  (*endpoint)->connection = header.connection;
  inbound_[header.connection] = *std::move(endpoint);
}

void UcxWire::OnPut(const Header& header, const std::byte* data, size_t bytes) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  std::byte* const place = Place(header, bytes);
  if (place != nullptr) std::memcpy(place, data, bytes);
  endpoint->refused |= place == nullptr;
  ++endpoint->puts_applied;
  if (!endpoint->flushes.empty()) AnswerFlushes(endpoint);
}

void UcxWire::OnFlush(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  endpoint->flushes.emplace_back(header.count, header.id);
  AnswerFlushes(endpoint);
}

void UcxWire::AnswerFlushes(Endpoint* endpoint) {
  std::erase_if(endpoint->flushes, [&](const auto& flush) {
    const auto [count, id] = flush;
    if (endpoint->puts_applied < count) return false;
    Send(endpoint, kAnswer,
         {.connection = endpoint->connection, .id = id, .refused = endpoint->refused}, nullptr, 0,
         nullptr);
    return true;
  });
}

void UcxWire::OnGet(const Header& header, const std::byte*, size_t) {
  Endpoint* const endpoint = Inbound(header);
  if (endpoint == nullptr) return;
  const bool fits = header.count <= kMessageBytesMax;
  const std::byte* const place = fits ? Place(header, header.count) : nullptr;
  Send(endpoint, kAnswer,
       {.connection = header.connection, .id = header.id, .refused = place == nullptr}, place,
       place == nullptr ? 0 : header.count, nullptr);
}

void UcxWire::OnBye(const Header& header, const std::byte*, size_t) {
  if (Endpoint* const endpoint = Inbound(header); endpoint != nullptr) {
    endpoint->health = absl::UnavailableError("the source left");
  }
}

// --- At the source. ---

void UcxWire::OnAnswer(const Header& header, const std::byte* data, size_t bytes) {
  const auto found = endpoints_.find(header.connection);
  if (found == endpoints_.end()) return;
  Endpoint& endpoint = *found->second;
  const auto awaited = endpoint.awaited.find(header.id);
  if (awaited == endpoint.awaited.end()) return;
  const Awaited& wait = awaited->second;
  absl::Status status;
  if (header.refused != 0 || bytes != wait.bytes) {
    status = absl::UnavailableError("the peer's region is gone");
  } else {
    if (bytes > 0) std::memcpy(wait.local, data, bytes);
    endpoint.puts_flushed = std::max(endpoint.puts_flushed, wait.puts_flushed);
  }
  Finish(wait.ticket, wait.bytes, status);
  endpoint.awaited.erase(awaited);
}

bool UcxWire::Progress() {
  const bool moved = ucp_worker_progress(worker_) != 0;
  CloseLostInbound();
  return moved;
}

void UcxWire::CloseLostInbound() {
  for (auto it = inbound_.begin(); it != inbound_.end();) {
    const auto next = std::next(it);
    if (!it->second->health.ok()) CloseEndpoint(std::move(inbound_.extract(it).mapped()));
    it = next;
  }
}

std::optional<int> UcxWire::Arm() {
  if (ucp_worker_arm(worker_) != UCS_OK) return std::nullopt;
  int fd = -1;
  if (ucp_worker_get_efd(worker_, &fd) != UCS_OK) return -1;
  return fd;
}

std::string UcxWire::Lanes(uint64_t endpoint) {
  const Endpoint& target = *endpoints_.at(endpoint);
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  ucp_ep_print_info(target.ep, stream);
  std::fclose(stream);
  const std::string lanes = LanesOfEndpointInfo(std::string(text, bytes));
  std::free(text);
  const bool mapped = std::any_of(target.imports.begin(), target.imports.end(),
                                  [](const Imported& i) { return i.mapped != nullptr; });
  return mapped ? "mapped+" + lanes : lanes;
}

void UcxWire::Close(uint64_t endpoint) {
  auto target = std::move(endpoints_.extract(endpoint).mapped());
  if (target->health.ok()) {
    Send(target.get(), kBye, {.connection = target->connection}, nullptr, 0, nullptr);
  }
  CloseEndpoint(std::move(target));
}

// Forced: nothing is asked of the peer, and what was under way ends with an error in the next
// rounds of progress. Transfers that ended OK were flushed, so nothing of theirs is lost.
void UcxWire::CloseEndpoint(std::unique_ptr<Endpoint> endpoint) {
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

void UcxWire::Abandon(Endpoint* endpoint) {
  for (Operation& operation : endpoint->operations) {
    Finish(operation.ticket, operation.bytes, absl::UnavailableError("the peer does not answer"));
    operation.ticket = nullptr;
  }
}

}  // namespace

std::unique_ptr<Wire> MakeUcxWire(const UcxContext& context) {
  return std::make_unique<UcxWire>(context);
}

}  // namespace skein::engine
