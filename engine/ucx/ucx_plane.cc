#include "engine/ucx/ucx_plane.h"

#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr auto kLastWordsMax = std::chrono::milliseconds(200);
constexpr auto kCloseMax = std::chrono::milliseconds(500);
constexpr int kArmTries = 16;

// Whether a put that could not be started says something of the peer. What this process lacks, or
// asks wrongly, does not.
bool IsOfPeer(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_UNSUPPORTED:
      return false;
    default:
      return true;
  }
}

// Room for a message in one segment of each transport, where the environment does not say
// otherwise (messages longer than a segment are slower, and right).
std::vector<UcxSetting> Settings(const UcxOptions& options) {
  std::vector<UcxSetting> settings;
  if (MayUseSharedMemory(options) && std::getenv("UCX_MM_SEG_SIZE") == nullptr &&
      std::getenv("UCX_POSIX_SEG_SIZE") == nullptr && std::getenv("UCX_SYSV_SEG_SIZE") == nullptr) {
    settings.emplace_back("MM_SEG_SIZE", absl::StrCat(kUcxSegmentBytes));
  }
  return settings;
}

}  // namespace

struct PlanePeer {
  UcxPlane* plane = nullptr;
  std::string address;
  ucp_ep_h ep = nullptr;
  bool lost = false;
  int uses = 0;
  ucs_status_ptr_t closing = nullptr;
  std::list<PlaneOperation> operations;
  size_t left_bytes = 0;  // of operations that nobody waits for any more
};

struct PlaneOperation {
  UcxPlane* plane = nullptr;
  PlanePeer* peer = nullptr;
  PlaneUser* user = nullptr;
  void* cookie = nullptr;
  bool ok = false;
  std::list<PlaneOperation>::iterator self;
  std::array<std::span<const std::byte>, UcxPlane::kPartsMax> parts;
  size_t count = 0;
  std::vector<std::byte> owned;
  size_t left_bytes = 0;  // its part of the peer's

  size_t Bytes() const {
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += parts[i].size();
    return bytes;
  }
  // Copies bytes from `offset` on, and returns how many.
  size_t Copy(size_t offset, std::byte* to, size_t bytes_max) const {
    size_t done = 0;
    for (size_t i = 0; i < count && done < bytes_max; ++i) {
      if (offset >= parts[i].size()) {
        offset -= parts[i].size();
        continue;
      }
      const size_t bytes = std::min(parts[i].size() - offset, bytes_max - done);
      std::memcpy(to + done, parts[i].data() + offset, bytes);
      done += bytes;
      offset = 0;
    }
    return done;
  }
};

// UCX's generic datatype: a message is packed when UCX has room, from where it is then. So what it
// has not packed yet can be taken over.
struct UcxPlane::Callbacks {
  static void* StartPack(void*, const void* operation, size_t) {
    return const_cast<void*>(operation);
  }
  static size_t PackedSize(void* state) { return static_cast<PlaneOperation*>(state)->Bytes(); }
  static size_t Pack(void* state, size_t offset, void* to, size_t bytes_max) {
    return static_cast<PlaneOperation*>(state)->Copy(offset, static_cast<std::byte*>(to),
                                                     bytes_max);
  }
  static void Finish(void*) {}

  static ucs_status_t OnMessage(void* to, const void*, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
    // We send nothing by rendezvous; a message that is not ours is dropped.
    if (header_bytes == 0 && (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      auto* const attached = static_cast<Attached*>(to);
      attached->plane->Arrived(attached, {static_cast<const std::byte*>(data), bytes});
    }
    return UCS_OK;
  }
  static void OnSent(void* request, ucs_status_t status, void* user_data) {
    auto* const operation = static_cast<PlaneOperation*>(user_data);
    operation->plane->Ended(operation, status == UCS_OK);
    ucp_request_free(request);
  }
  static void OnError(void* argument, ucp_ep_h, ucs_status_t) {
    auto* const peer = static_cast<PlanePeer*>(argument);
    peer->plane->Lost(peer);
  }
};

absl::StatusOr<std::shared_ptr<UcxPlane>> UcxPlane::Make(const UcxOptions& options) {
  auto context = MakeUcxContext(options, Settings(options));
  if (!context.ok()) return context.status();
  return std::shared_ptr<UcxPlane>(new UcxPlane(*std::move(context)));
}

UcxPlane::UcxPlane(UcxContext context) : context_(std::move(context)) {
  SKEIN_CHECK(ucp_worker_get_efd(context_.worker, &event_fd_) == UCS_OK);
  ucp_generic_dt_ops_t pack{};
  pack.start_pack = Callbacks::StartPack;
  pack.packed_size = Callbacks::PackedSize;
  pack.pack = Callbacks::Pack;
  pack.finish = Callbacks::Finish;
  SKEIN_CHECK(ucp_dt_create_generic(&pack, this, &datatype_) == UCS_OK);
  for (const PlaneUse use : {PlaneUse::kTransport, PlaneUse::kComm}) {
    Attached& attached = users_[static_cast<size_t>(use)];
    attached.plane = this;
    attached.rung_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    SKEIN_CHECK(attached.rung_fd >= 0);
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = static_cast<unsigned>(use);
    params.cb = Callbacks::OnMessage;
    params.arg = &attached;
    ucp_worker_set_am_recv_handler(context_.worker, &params);
  }
}

UcxPlane::~UcxPlane() {
  const auto until = [](auto span) { return std::chrono::steady_clock::now() + span; };
  const auto progress_until = [&](std::chrono::steady_clock::time_point end, const auto& done) {
    while (!done() && std::chrono::steady_clock::now() < end) ucp_worker_progress(context_.worker);
  };
  progress_until(until(kLastWordsMax), [&] { return !UnderWay(); });
  for (auto& [address, peer] : peers_) lost_.push_back(std::move(peer));
  peers_.clear();
  for (const auto& peer : lost_) {
    SKEIN_CHECK(peer->uses == 0);
    Cut(peer.get());
  }
  progress_until(until(kCloseMax), [&] {
    ForgetLost();
    return lost_.empty();
  });
  Destroy(context_);
  ucp_dt_destroy(datatype_);  // the worker may use it until its end
  for (const Attached& attached : users_) {
    if (attached.rung_fd >= 0) close(attached.rung_fd);
  }
}

bool UcxPlane::UnderWay() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& known) {
    return !known.second->lost && !known.second->operations.empty();
  });
}

int UcxPlane::Attach(PlaneUse use, PlaneUser* user) {
  const Lock lock = Hold();
  Attached& attached = users_[static_cast<size_t>(use)];
  SKEIN_CHECK_MSG(attached.user == nullptr, "the plane has such a user already");
  attached.user = user;
  return attached.rung_fd;
}

void UcxPlane::Detach(PlaneUser* user) {
  const Lock lock = Hold();
  Attached& attached = Of(user);
  const auto take_over = [&](PlanePeer* peer) {
    for (PlaneOperation& operation : peer->operations) {
      if (operation.user == user) TakeOver(&operation, nullptr);
    }
  };
  for (auto& [address, peer] : peers_) take_over(peer.get());
  for (const auto& peer : lost_) take_over(peer.get());
  attached.user = nullptr;
  attached.asleep = false;
  attached.messages.clear();
  attached.kept_bytes = 0;
  attached.ended.clear();
}

UcxPlane::Attached& UcxPlane::Of(PlaneUser* user) {
  for (Attached& attached : users_) {
    if (attached.user == user) return attached;
  }
  SKEIN_CHECK_MSG(false, "not a user of the plane");
  return users_[0];
}

absl::StatusOr<PlanePeer*> UcxPlane::Connect(const std::string& worker_address) {
  const Lock lock = Hold();
  ForgetLost();
  std::unique_ptr<PlanePeer>& known = peers_[worker_address];
  if (known != nullptr && known->lost) {
    Cut(known.get());  // its users keep it, but two endpoints of UCX lead nowhere together
    lost_.push_back(std::move(known));
  }
  if (known != nullptr && known->left_bytes > kLeftBytesMax) {
    return absl::UnavailableError(
        absl::StrCat("the peer has not taken ", known->left_bytes,
                     " bytes that were under way when its connections were closed"));
  }
  if (known == nullptr) {
    auto peer = std::make_unique<PlanePeer>();
    peer->plane = this;
    peer->address = worker_address;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = Callbacks::OnError;
    params.err_handler.arg = peer.get();
    const auto status =
        FromUcs(ucp_ep_create(context_.worker, &params, &peer->ep), "ucp_ep_create");
    if (!status.ok()) {
      peers_.erase(worker_address);
      return status;
    }
    known = std::move(peer);
  }
  ++known->uses;
  return known.get();
}

void UcxPlane::Release(PlanePeer* peer) {
  const Lock lock = Hold();
  --peer->uses;
  if (peer->lost) ForgetLost();
}

bool UcxPlane::IsLost(const PlanePeer* peer) {
  const Lock lock = Hold();
  return peer->lost;
}

size_t UcxPlane::peers() {
  const Lock lock = Hold();
  ForgetLost();
  return peers_.size() + lost_.size();
}

void UcxPlane::Lost(PlanePeer* peer) {
  if (std::exchange(peer->lost, true)) return;
  losses_.fetch_add(1, std::memory_order_release);
  for (Attached& attached : users_) {
    attached.lost_one = true;
    Ring(&attached);
  }
}

bool UcxPlane::Cut(PlanePeer* peer) {
  const Lock lock = Hold();
  Lost(peer);
  if (peer->ep != nullptr) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    peer->closing = ucp_ep_close_nbx(std::exchange(peer->ep, nullptr), &params);
  }
  return !UCS_PTR_IS_PTR(peer->closing) ||
         ucp_request_check_status(peer->closing) != UCS_INPROGRESS;
}

// Those that no user has any more, as soon as UCX has closed them.
void UcxPlane::ForgetLost() {
  for (auto it = peers_.begin(); it != peers_.end();) {
    const auto next = std::next(it);
    if (it->second->lost && it->second->uses == 0) {
      lost_.push_back(std::move(it->second));
      peers_.erase(it);
    }
    it = next;
  }
  std::erase_if(lost_, [this](const auto& peer) {
    if (peer->uses > 0 || !Cut(peer.get()) || !peer->operations.empty()) return false;
    if (UCS_PTR_IS_PTR(peer->closing)) ucp_request_free(peer->closing);
    return true;
  });
}

const std::string& UcxPlane::AddressOf(const PlanePeer* peer) { return peer->address; }

std::string UcxPlane::InfoOf(const PlanePeer* peer) {
  const Lock lock = Hold();
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = peer->ep == nullptr ? nullptr : open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  ucp_ep_print_info(peer->ep, stream);
  std::fclose(stream);
  const std::string info(text, bytes);
  std::free(text);
  return info;
}

ucp_ep* UcxPlane::EndpointOf(const PlanePeer* peer) { return peer->ep; }

PlaneOperation* UcxPlane::NewOperation(PlaneUser* user, PlanePeer* peer, void* cookie) {
  if (spare_.empty()) spare_.emplace_back();
  const auto operation = spare_.begin();
  operation->plane = this;
  operation->peer = peer;
  operation->user = user;
  operation->cookie = cookie;
  operation->self = operation;
  operation->count = 0;
  return &*operation;
}

// Later messages and flushes mean nothing without one that is missing: so the peer is lost.
UcxPlane::Started UcxPlane::Launched(PlaneOperation* operation, void* request) {
  if (UCS_PTR_IS_ERR(request)) {
    Lost(operation->peer);
    return {How::kFailed};
  }
  if (!UCS_PTR_IS_PTR(request)) return {How::kDone};
  auto& operations = operation->peer->operations;
  operations.splice(operations.end(), spare_, operation->self);
  return {How::kUnderWay, operation};
}

UcxPlane::Started UcxPlane::Send(PlaneUser* user, PlanePeer* peer,
                                 std::span<const std::span<const std::byte>> parts, void* cookie) {
  const Lock lock = Hold();
  if (peer->ep == nullptr) return {How::kFailed};
  SKEIN_CHECK(parts.size() <= kPartsMax);
  PlaneOperation* const operation = NewOperation(user, peer, cookie);
  std::copy(parts.begin(), parts.end(), operation->parts.begin());
  operation->count = parts.size();
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FIELD_DATATYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.datatype = datatype_;
  params.cb.send = Callbacks::OnSent;
  params.user_data = operation;
  const size_t use = static_cast<size_t>(&Of(user) - users_.data());
  return Launched(operation, ucp_am_send_nbx(peer->ep, static_cast<unsigned>(use), nullptr, 0,
                                             operation, 1, &params));
}

UcxPlane::Started UcxPlane::Put(PlaneUser* user, PlanePeer* peer, std::span<const std::byte> local,
                                uint64_t remote, ucp_rkey* key, void* cookie) {
  const Lock lock = Hold();
  if (peer->ep == nullptr) return {How::kFailed};
  PlaneOperation* const operation = NewOperation(user, peer, cookie);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = Callbacks::OnSent;
  params.user_data = operation;
  void* const request = ucp_put_nbx(peer->ep, local.data(), local.size(), remote, key, &params);
  if (UCS_PTR_IS_ERR(request) && !IsOfPeer(UCS_PTR_STATUS(request))) return {How::kFailed};
  return Launched(operation, request);
}

UcxPlane::Started UcxPlane::Flush(PlaneUser* user, PlanePeer* peer, void* cookie) {
  const Lock lock = Hold();
  if (peer->ep == nullptr) return {How::kFailed};
  PlaneOperation* const operation = NewOperation(user, peer, cookie);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = Callbacks::OnSent;
  params.user_data = operation;
  return Launched(operation, ucp_ep_flush_nbx(peer->ep, &params));
}

void UcxPlane::TakeOver(PlaneOperation* operation, void* cookie) {
  const Lock lock = Hold();
  operation->cookie = cookie;
  if (cookie == nullptr && operation->left_bytes == 0) {
    operation->left_bytes = operation->Bytes();
    operation->peer->left_bytes += operation->left_bytes;
  }
  if (!operation->owned.empty() || operation->count == 0) return;
  std::vector<std::byte> copy(operation->Bytes());
  operation->Copy(0, copy.data(), copy.size());
  operation->owned = std::move(copy);
  operation->parts[0] = operation->owned;
  operation->count = 1;
}

void UcxPlane::Ended(PlaneOperation* operation, bool ok) {
  auto& operations = operation->peer->operations;
  if (!ok) Lost(operation->peer);
  operation->ok = ok;
  operation->owned = {};
  operation->count = 0;  // UCX reads it no more, so there is nothing to take over
  operation->peer->left_bytes -= std::exchange(operation->left_bytes, 0);
  if (operation->cookie == nullptr) {
    spare_.splice(spare_.end(), operations, operation->self);
    return;
  }
  Attached& of = Of(operation->user);
  of.ended.splice(of.ended.end(), operations, operation->self);
  if (progressing_ != operation->user) Ring(&of);
}

void UcxPlane::Arrived(Attached* to, std::span<const std::byte> message) {
  if (to->user == nullptr) return;
  if (progressing_ == to->user) return to->user->OnMessage(message);
  to->messages.emplace_back(message.begin(), message.end());
  const bool was_little = to->kept_bytes < kKeptBytesMax / 4;
  to->kept_bytes += message.size();
  Ring(to);
  if (was_little && to->kept_bytes >= kKeptBytesMax / 4) to->user->OnKept();
}

bool UcxPlane::AnotherIsFull(const PlaneUser* user) const {
  return std::any_of(users_.begin(), users_.end(), [user](const Attached& other) {
    return other.user != user && other.kept_bytes >= kKeptBytesMax;
  });
}

// In the order in which it came.
int UcxPlane::Deliver(Attached* to) {
  int delivered = 0;
  for (; !to->messages.empty(); ++delivered) {
    const std::vector<std::byte> message = std::move(to->messages.front());
    to->messages.pop_front();
    to->kept_bytes -= message.size();
    to->user->OnMessage(message);
  }
  for (; !to->ended.empty(); ++delivered) {
    const auto operation = to->ended.begin();
    void* const cookie = operation->cookie;
    const bool ok = operation->ok;
    spare_.splice(spare_.end(), to->ended, operation);
    if (cookie != nullptr) to->user->OnSent(cookie, ok);
  }
  return delivered;
}

void UcxPlane::Ring(Attached* user) {
  if (!user->asleep) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable.
  [[maybe_unused]] const ssize_t written = write(user->rung_fd, &one, sizeof one);
}

int UcxPlane::Progress(PlaneUser* user, int most) {
  const Lock lock = Hold();
  Attached& own = Of(user);
  PlaneUser* const outer = std::exchange(progressing_, user);
  int moved = Deliver(&own);
  const int kept = moved;
  while (moved < most && !AnotherIsFull(user) && ucp_worker_progress(context_.worker) != 0) {
    ++moved;
    if (!own.ended.empty()) Deliver(&own);
  }
  progressing_ = outer;
  if (!lost_.empty()) ForgetLost();
  if (moved == kept) return moved;
  // What woke the others may have been taken from them.
  const bool others_sleep = std::any_of(users_.begin(), users_.end(), [&](const Attached& other) {
    return other.asleep && other.user != user;
  });
  bool armed = !others_sleep;
  for (int i = 0; i < kArmTries && !armed; ++i) {
    armed = ucp_worker_arm(context_.worker) == UCS_OK;
    if (!armed) ucp_worker_progress(context_.worker);
  }
  for (Attached& other : users_) {
    if (!armed && other.user != user) Ring(&other);
  }
  return moved;
}

bool UcxPlane::Arm(PlaneUser* user) {
  const Lock lock = Hold();
  Attached& own = Of(user);
  if (std::exchange(own.lost_one, false)) return false;
  if (!own.messages.empty() || !own.ended.empty()) return false;
  if (ucp_worker_arm(context_.worker) != UCS_OK) return false;
  own.asleep = true;
  return true;
}

void UcxPlane::Awake(PlaneUser* user) {
  const Lock lock = Hold();
  Attached& own = Of(user);
  own.asleep = false;
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t drained = read(own.rung_fd, &rung, sizeof rung);
}

}  // namespace skein::engine
