#include "engine/transport/ucx/ucx_wire.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/transport/device/device_inbox.h"
#include "engine/transport/device/direct_wire.h"
#include "engine/transport/device/staged_wire.h"
#include "engine/transport/ucx/stream_copy.h"
#include "engine/transport/ucx/ucx_endpoint.h"
#include "engine/transport/ucx/ucx_grants.h"
#include "engine/transport/ucx/ucx_memory.h"
#include "engine/transport/ucx/ucx_target.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kReadsInARow = 16;

const Imported& ImportedOf(const WirePiece& piece) {
  return *reinterpret_cast<const Imported*>(piece.key);
}

// Readers wait for StreamFence.
void CopyMapped(TransferOp op, const WirePiece& piece) {
  const Imported& place = ImportedOf(piece);
  std::byte* const remote = place.mapped + (piece.remote - place.address);
  if (op == TransferOp::kPut) StreamCopy(remote, piece.local, piece.bytes);
  if (op == TransferOp::kGet) StreamCopy(piece.local, remote, piece.bytes);
}

uint64_t RandomId() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// The source's part; the target's is UcxTarget.
class UcxWire : public Wire, private PlaneUser {
 public:
  UcxWire(UcxParts parts, std::shared_ptr<CopyStream> copies, size_t sources_max);
  ~UcxWire() override;

  absl::StatusOr<WireMapping> Map(void* base, size_t bytes) override {
    return memory_.Map(base, bytes);
  }
  void Unmap(uint64_t mapping) override { memory_.Unmap(mapping); }
  absl::StatusOr<uint64_t> Open(const std::string& address) override;
  absl::StatusOr<uint64_t> Import(uint64_t endpoint, const DescribedRegion& region) override;
  void Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
             WireTicket* ticket) override;
  void Flush(uint64_t endpoint, WireTicket* ticket) override;
  WireGrants* Grants() override { return &grants_; }
  bool Progress() override;
  std::optional<int> Arm() override;
  absl::Status Health(uint64_t endpoint) override { return endpoints_.at(endpoint)->health; }
  std::string TransportName(uint64_t endpoint) override;
  std::string WhyNotFaster(uint64_t endpoint) override;
  TransferPath Path(uint64_t endpoint) override;
  void Close(uint64_t endpoint) override;

 private:
  void OnMessage(std::span<const std::byte> framed) override;
  void OnSent(void* cookie, bool ok) override;
  void OnKept() override {}  // somebody always is in Poll, or soon will be
  void OnUnframed(Message message, std::span<const std::byte> header,
                  std::span<const std::byte> data);
  void OnPut(std::span<const std::byte> header, std::span<const std::byte> data);
  void OnAnswer(const Header& header, const std::byte* data, size_t bytes);
  void OnBye(const Header& header, const std::byte* data, size_t bytes);
  void OnGrant(Message message, const Header& header);
  void Watch(int fd);

  void Greet(Endpoint* endpoint);
  void GreetAgain(Endpoint* endpoint);
  void AddToPut(Endpoint* endpoint, const WirePiece& piece, PutMessage* put, WireTicket* ticket);
  void FinishPut(Endpoint* endpoint, PutMessage* put, WireTicket* ticket);
  void StartGet(Endpoint* endpoint, const WirePiece& piece, WireTicket* ticket);

  const std::shared_ptr<UcxPlane> plane_;
  const std::unique_ptr<HostWire> host_;
  const std::unique_ptr<TcpWire> tcp_;
  const std::string address_;
  const int events_fd_;  // readable when any of the wire's is
  bool asleep_ = false;  // since Arm
  UcxEndpoints opener_;
  const std::unique_ptr<DeviceInbox> inbox_;  // null: all memory is the host's
  UcxMemory memory_;
  UcxGrants::Endpoints endpoints_;  // opened here, by connection
  UcxGrants grants_;
  UcxTarget target_;
  uint64_t next_id_ = 1;  // of awaited answers
};

UcxWire::UcxWire(UcxParts parts, std::shared_ptr<CopyStream> copies, size_t sources_max)
    : plane_(std::move(parts.plane)),
      host_(std::move(parts.host)),
      tcp_(std::move(parts.tcp)),
      address_(parts.address),
      events_fd_(epoll_create1(EPOLL_CLOEXEC)),
      opener_(plane_.get(), this, host_.get(), tcp_.get(), std::move(parts.far_refused)),
      inbox_(copies == nullptr
                 ? nullptr
                 : std::make_unique<DeviceInbox>(std::move(copies), kMessageBytesMax)),
      memory_(host_ != nullptr, inbox_.get(), parts.rma ? plane_.get() : nullptr),
      grants_(&endpoints_, inbox_.get(), [this](Endpoint* endpoint) { GreetAgain(endpoint); }),
      target_(&opener_, &memory_, inbox_.get(), &grants_, sources_max) {
  SKEIN_CHECK(events_fd_ >= 0);
  Watch(plane_->Attach(PlaneUse::kTransport, this));
  Watch(plane_->fd());
  Watch(opener_.ended_fd());
  if (host_ != nullptr) Watch(host_->fd());
  if (tcp_ != nullptr) Watch(tcp_->fd());
}

UcxWire::~UcxWire() {
  while (!endpoints_.empty()) Close(endpoints_.begin()->first);
  target_.CloseAll();
  memory_.UnmapAll();
  plane_->Detach(this);
  close(events_fd_);
}

void UcxWire::Watch(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  SKEIN_CHECK(epoll_ctl(events_fd_, EPOLL_CTL_ADD, fd, &event) == 0);
}

void UcxWire::OnMessage(std::span<const std::byte> framed) {
  Frame frame;
  if (framed.size() < sizeof frame) return;
  std::memcpy(&frame, framed.data(), sizeof frame);
  framed = framed.subspan(sizeof frame);
  if (frame.header_bytes > framed.size()) return;
  OnUnframed(static_cast<Message>(frame.message), framed.first(frame.header_bytes),
             framed.subspan(frame.header_bytes));
}

void UcxWire::OnSent(void* cookie, bool ok) {
  auto* const operation = static_cast<Operation*>(cookie);
  operation->flushes ? EndFlush(operation, ok) : EndOperation(operation, ok);
}

// What is not ours is dropped.
void UcxWire::OnUnframed(Message message, std::span<const std::byte> header,
                         std::span<const std::byte> data) {
  if (message == kPut) return OnPut(header, data);
  Header copy;
  if (header.size() != sizeof copy) return;
  std::memcpy(&copy, header.data(), sizeof copy);
  switch (message) {
    case kHello:
      return target_.OnHello(copy, data.data(), data.size());
    case kFlush:
      return target_.OnFlush(copy, data.data(), data.size());
    case kGet:
      return target_.OnGet(copy, data.data(), data.size());
    case kBye:
      return OnBye(copy, data.data(), data.size());
    case kAnswer:
      return OnAnswer(copy, data.data(), data.size());
    case kAsk:
      return target_.OnAsk(copy);
    case kWithdrawn:
      return target_.OnWithdrawn(copy);
    case kPermit:
    case kWithdraw:
      return OnGrant(message, copy);
    default:
      return;
  }
}

void UcxWire::OnPut(std::span<const std::byte> header, std::span<const std::byte> data) {
  PutHeader copy;
  if (header.size() < sizeof(Header) || header.size() > sizeof copy) return;
  std::memcpy(&copy, header.data(), header.size());
  if (copy.base.count > kFragmentsMax || header.size() != copy.Bytes()) return;
  target_.OnPut(copy.base, {copy.to.data(), copy.base.count}, data);
}

absl::StatusOr<uint64_t> UcxWire::Open(const std::string& address) {
  auto endpoint = opener_.Open(address);
  if (!endpoint.ok()) return endpoint.status();
  const uint64_t connection = RandomId();
  (*endpoint)->connection = connection;
  Greet(endpoint->get());
  endpoints_[connection] = *std::move(endpoint);
  return connection;
}

void UcxWire::Greet(Endpoint* endpoint) {
  Send(endpoint, kHello, {.connection = endpoint->connection}, address_.data(), address_.size(),
       nullptr);
}

// Before a message that the target has to know the connection for.
void UcxWire::GreetAgain(Endpoint* endpoint) {
  if (!std::exchange(endpoint->closed_by_target, false)) return;
  endpoint->puts_started = endpoint->puts_flushed = 0;  // the target counts from 0, too
  Greet(endpoint);
}

// Of what was under way nobody knows whether it was applied.
void UcxWire::OnBye(const Header& header, const std::byte* data, size_t bytes) {
  target_.OnBye(header, data, bytes);
  const auto found = endpoints_.find(header.connection);
  if (found == endpoints_.end()) return;
  Endpoint& endpoint = *found->second;
  if (endpoint.puts_started == endpoint.puts_flushed && endpoint.awaited.empty()) {
    endpoint.closed_by_target = true;
    endpoint.permits.clear();  // asked, and perhaps not heard
  } else {
    endpoint.health = absl::UnavailableError("the peer closed the connection");
  }
}

void UcxWire::OnGrant(Message message, const Header& header) {
  const auto found = endpoints_.find(header.connection);
  if (found == endpoints_.end()) return;
  Endpoint* const target = found->second.get();
  if (message == kPermit) return UcxGrants::OnPermit(target, header.grant, header.refused != 0);
  UcxGrants::OnWithdraw(target, header.grant);
}

absl::StatusOr<uint64_t> UcxWire::Import(uint64_t endpoint, const DescribedRegion& region) {
  Endpoint& target = *endpoints_.at(endpoint);
  auto imported = ImportRegion(target, region);
  if (!imported.ok()) return imported.status();
  target.by_rma |= imported->key != nullptr;
  target.imports.push_back(*std::move(imported));
  return reinterpret_cast<uint64_t>(&target.imports.back());
}

void UcxWire::Start(uint64_t endpoint, TransferOp op, std::span<const WirePiece> pieces,
                    WireTicket* ticket) {
  Endpoint* const target = endpoints_.at(endpoint).get();
  PutMessage put;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const WirePiece& piece = pieces[i];
    if (ImportedOf(piece).mapped != nullptr) {
      if (i + 1 < pieces.size()) StreamAhead(pieces[i + 1].local);
      CopyMapped(op, piece);
    } else if (op == TransferOp::kPut && ImportedOf(piece).key != nullptr) {
      PutByRma(target, piece, ImportedOf(piece).key.get(), ticket);
    } else if (op == TransferOp::kPut) {
      AddToPut(target, piece, &put, ticket);
    } else {
      StartGet(target, piece, ticket);
    }
  }
  StreamFence();
  FinishPut(target, &put, ticket);
}

// Pieces share messages: on tcp a message costs a system call on each side and more.
void UcxWire::AddToPut(Endpoint* endpoint, const WirePiece& piece, PutMessage* put,
                       WireTicket* ticket) {
  for (uint64_t offset = 0; offset < piece.bytes;) {
    const uint64_t bytes = std::min<uint64_t>(kMessageBytesMax - put->bytes, piece.bytes - offset);
    put->Add({ImportedOf(piece).mapping, piece.remote + offset, bytes}, piece.local + offset);
    offset += bytes;
    if (put->full()) FinishPut(endpoint, put, ticket);
  }
}

void UcxWire::FinishPut(Endpoint* endpoint, PutMessage* put, WireTicket* ticket) {
  if (put->bytes == 0) return;
  GreetAgain(endpoint);
  put->header.base.connection = endpoint->connection;
  put->header.base.grant = ticket->grant;
  ++endpoint->puts_started;
  endpoint->has_put = true;
  SendPut(endpoint, *put, ticket);
  *put = {};
}

void UcxWire::StartGet(Endpoint* endpoint, const WirePiece& piece, WireTicket* ticket) {
  GreetAgain(endpoint);
  for (uint64_t offset = 0; offset < piece.bytes; offset += kMessageBytesMax) {
    const uint64_t bytes = std::min<uint64_t>(kMessageBytesMax, piece.bytes - offset);
    const Header header{.connection = endpoint->connection,
                        .id = next_id_++,
                        .mapping = ImportedOf(piece).mapping,
                        .address = piece.remote + offset,
                        .count = bytes};
    endpoint->awaited[header.id] = {ticket, piece.local + offset, bytes, 0};
    Begin(ticket, bytes);
    Send(endpoint, kGet, header, nullptr, 0, ticket);
  }
}

void UcxWire::Flush(uint64_t endpoint, WireTicket* ticket) {
  Endpoint* const target = endpoints_.at(endpoint).get();
  if (RmaPending(*target)) FlushRma(target, ticket, 0);
  // The flush of another put says nothing of this one's grant.
  const bool flushed = target->puts_started == target->puts_flushed && ticket->grant == 0;
  if (flushed || !target->has_put) return;
  GreetAgain(target);
  const uint64_t id = next_id_++;
  target->awaited[id] = {ticket, nullptr, 0, target->puts_started};
  Begin(ticket, 0);
  Send(target, kFlush,
       {.connection = target->connection,
        .id = id,
        .count = target->puts_started,
        .grant = ticket->grant},
       nullptr, 0, ticket);
}

void UcxWire::OnAnswer(const Header& header, const std::byte* data, size_t bytes) {
  const auto found = endpoints_.find(header.connection);
  if (found == endpoints_.end()) return;
  Endpoint& endpoint = *found->second;
  const auto awaited = endpoint.awaited.find(header.id);
  if (awaited == endpoint.awaited.end()) return;
  const Awaited& wait = awaited->second;
  absl::Status status;
  if (header.refused == kRefusedGrant) {
    status = ClosedGrant();
    endpoint.puts_flushed = std::max(endpoint.puts_flushed, wait.puts_flushed);
  } else if (header.refused != 0 || bytes != wait.bytes) {
    status = absl::UnavailableError("the peer's region is gone");
  } else {
    if (bytes > 0) std::memcpy(wait.local, data, bytes);
    endpoint.puts_flushed = std::max(endpoint.puts_flushed, wait.puts_flushed);
  }
  Finish(wait.ticket, wait.bytes, status);
  endpoint.awaited.erase(awaited);
}

bool UcxWire::Progress() {
  const bool woke = std::exchange(asleep_, false);
  if (woke) plane_->Awake(this);
  bool moved = plane_->Progress(this, 1) != 0;
  const auto receive = [this](std::span<const std::byte> message) { OnMessage(message); };
  if (host_ != nullptr && woke) host_->Wake();
  moved |= opener_.SendWaiting();
  if (host_ != nullptr) moved |= host_->Read(kReadsInARow, receive) > 0;
  if (tcp_ != nullptr) moved |= tcp_->Progress(receive);
  opener_.LoseEnded();
  moved |= target_.Progress();
  target_.CloseLost();
  return moved;
}

std::optional<int> UcxWire::Arm() {
  if (host_ != nullptr && !host_->Sleep()) return std::nullopt;
  asleep_ = true;
  if (!opener_.AwaitRoom() || !plane_->Arm(this)) return std::nullopt;
  return events_fd_;
}

std::string UcxWire::TransportName(uint64_t endpoint) {
  const Endpoint& target = *endpoints_.at(endpoint);
  if (target.ucx != nullptr) {
    return absl::StrCat(target.by_rma ? "rma+" : "",
                        TransportsOfEndpointInfo(plane_->InfoOf(target.ucx)));
  }
  if (!target.near) return "tcp";
  const bool mapped = std::any_of(target.imports.begin(), target.imports.end(),
                                  [](const Imported& i) { return i.mapped != nullptr; });
  return mapped ? "mapped+ring" : "ring";
}

std::string UcxWire::WhyNotFaster(uint64_t endpoint) {
  const Endpoint& target = *endpoints_.at(endpoint);
  const bool all_mapped = std::all_of(
      target.imports.begin(), target.imports.end(),
      [](const Imported& i) { return i.mapped != nullptr || IsDeviceMapping(i.mapping); });
  if (target.near) return all_mapped ? "" : "some of its memory cannot be mapped here";
  const std::string far = absl::StrCat("its memory cannot be mapped here: ", target.why_far);
  if (target.by_rma) return far;
  const std::string rma =
      target.ucx == nullptr || !target.why_no_fabric.empty()
          ? target.why_no_fabric
          : "UCX has no reliable connection to it, so it takes each message itself";
  return rma.empty() ? far : absl::StrCat(far, "; ", rma);
}

// A device's memory at the target: it stages.
TransferPath UcxWire::Path(uint64_t endpoint) {
  const std::list<Imported>& imports = endpoints_.at(endpoint)->imports;
  const bool device = std::any_of(imports.begin(), imports.end(),
                                  [](const Imported& i) { return IsDeviceMapping(i.mapping); });
  return device ? TransferPath::kHostStaged : TransferPath::kDirect;
}

void UcxWire::Close(uint64_t endpoint) {
  auto target = std::move(endpoints_.extract(endpoint).mapped());
  // One whose puts may still arrive does not say that it left: Close cuts it off.
  const bool settled = opener_.SettleRma(target.get());
  if (settled && target->health.ok()) {
    Send(target.get(), kBye, {.connection = target->connection}, nullptr, 0, nullptr);
  }
  opener_.Close(std::move(target));
}

}  // namespace

std::unique_ptr<Wire> MakeUcxWire(UcxParts parts, std::shared_ptr<CopyStream> copies,
                                  std::shared_ptr<PeerOpener> opener, size_t sources_max) {
  const bool sees_peers = parts.host != nullptr;
  auto wire = std::make_unique<UcxWire>(std::move(parts), copies, sources_max);
  if (copies == nullptr) return wire;
  auto staged = std::make_unique<StagedWire>(std::move(wire), copies);
  if (opener == nullptr || !sees_peers) return staged;
  return std::make_unique<DirectWire>(std::move(staged), std::move(copies), std::move(opener));
}

}  // namespace skein::engine
