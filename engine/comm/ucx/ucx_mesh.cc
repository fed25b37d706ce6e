#include "engine/comm/ucx/ucx_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFragmentBytesMax = kUcxSegmentBytes - 256;  // beside our header and UCX's
constexpr size_t kUnderWayMax = 2;   // of a peer; more would only wait inside UCX
constexpr int kFragmentsInARow = 8;  // then it is time to look for what came
constexpr int kProgressInARow = 16;
constexpr int kLooksMax = 16;  // of kProgressInARow, for the word of an abort
// A call that waits spins for so many looks at the wire (some 10 µs in all), then sleeps. It does
// not yield meanwhile: on a busy machine a thread that yields comes back after everybody's time
// slice, one that sleeps is woken at once.
constexpr int kSpins = 50;
// Bounds the arithmetic of deadlines such as time_point::max().
constexpr auto kSleepMax = std::chrono::seconds(10);
// How long a thread stands back where UCX neither moves anything nor lets itself be armed: as long
// as a peer's queue in shared memory is full, which a peer that computes does not look at, or a
// keepalive is retried to one that is gone and whose process, out of our sight, nobody has waited
// for yet. And the fabric's own thread for those who want the lock.
constexpr auto kStandBack = std::chrono::milliseconds(2);
// How long the end of a fabric waits for its last words to leave.
constexpr auto kLastWordsMax = std::chrono::milliseconds(200);

int MillisUntil(CommDeadline deadline) {
  const auto left = std::min<Clock::duration>(deadline - Clock::now(), kSleepMax);
  return std::max<int>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace

UcxMesh::UcxMesh(UcxParts parts)
    : plane_(std::move(parts.plane)),
      host_(std::move(parts.host)),
      tcp_(std::move(parts.tcp)),
      leftovers_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      rung_fd_(plane_->Attach(PlaneUse::kComm, this)),
      peers_(
          plane_.get(), this, host_.get(), tcp_.get(),
          [this](const UcxOperation& operation) { WasSent(operation); }, [this] { OnDeath(); },
          std::move(parts.far_refused)) {
  kick_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  SKEIN_CHECK(kick_fd_ >= 0 && leftovers_fd_ >= 0);
  leftovers_thread_ = std::thread([this] { SendLeftovers(); });
}

UcxMesh::~UcxMesh() {
  {
    Lock lock = Enter();
    stopping_ = true;
    WakeLeftovers();
    if (on_worker_) Kick();
  }
  leftovers_thread_.join();
  const auto until = Clock::now() + kLastWordsMax;
  while (peers_.under_way() > 0 && Clock::now() < until) {
    plane_->Progress(this, 1);
    MoveMessages();
  }
  peers_.CloseAll();
  plane_->Detach(this);
  close(kick_fd_);
  close(leftovers_fd_);
}

// Lets a thread that spins know that it should let others in. A lock that is handed on in the order
// of asking (FairMutex) costs two busy groups a switch of threads at every turn
// (bench/comm/README.md).
UcxMesh::Lock UcxMesh::Enter() {
  entering_.fetch_add(1, std::memory_order_relaxed);
  Lock lock(mutex_);
  entering_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

void UcxMesh::Breathe(Lock* lock) {
  lock->unlock();
  if (entering_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
  *lock = Enter();
}

absl::StatusOr<UcxGroup*> UcxMesh::AddGroup(GroupDigest key, std::span<const UcxAddress> addresses,
                                            int rank) {
  const Lock lock = Enter();
  if (groups_.contains(key) || early_.Closed(key)) {
    return absl::AlreadyExistsError("the id is or was in use by these members");
  }
  const int size = static_cast<int>(addresses.size());
  std::unique_ptr<UcxGroup> group(new UcxGroup{WireGroup(key, rank, size, kFragmentBytesMax)});
  for (int r = 0; r < size; ++r) {
    const absl::StatusOr<UcxPeer*> peer = r == rank ? nullptr : peers_.Get(addresses[r]);
    if (!peer.ok()) {
      for (UcxPeer* const got : group->peers) peers_.Release(got);
      return peer.status();
    }
    group->peers.push_back(*peer);
  }
  for (const auto& [header, data] : early_.Take(key)) group->wire.Arrived(header, data);
  SendControls(group.get());
  return (groups_[key] = std::move(group)).get();
}

absl::Status UcxMesh::Connect(const UcxAddress& address) {
  const Lock lock = Enter();
  const absl::StatusOr<UcxPeer*> peer = peers_.Get(address);
  if (!peer.ok()) return peer.status();
  const bool dead = (*peer)->dead;
  peers_.Release(*peer);  // it stays as long as its process lives
  return dead ? absl::UnavailableError("the process cannot be reached") : absl::OkStatus();
}

bool UcxMesh::Connected(const UcxAddress& address) {
  const Lock lock = Enter();
  return peers_.Connected(address);
}

FabricCounts UcxMesh::Links() {
  const Lock lock = Enter();
  Progress();
  peers_.LoseEnded();
  if (on_worker_ && disarmed_) Kick();
  return {.links = peers_.made(), .lost = peers_.lost()};
}

void UcxMesh::RemoveGroup(UcxGroup* group) {
  const Lock lock = Enter();
  group->wire.Leave();
  SendControls(group);
  peers_.Disown(group);
  std::erase(to_send_controls_, group);
  const GroupDigest key = group->wire.key();
  early_.Close(key);
  for (UcxPeer* const peer : group->peers) peers_.Release(peer);
  groups_.erase(key);
}

void UcxMesh::Send(UcxGroup* group, int to, std::span<const std::byte> data, Signature signature) {
  const Lock lock = Enter();
  group->wire.Send(to, data, signature);
  Pump(group);
}

void UcxMesh::Receive(UcxGroup* group, int from, std::span<std::byte> data, Signature signature) {
  const Lock lock = Enter();
  group->wire.Receive(from, data, signature);
  SendControls(group);
}

// Looks at the wire first, so that the word of an abort that has come is heard.
absl::Status UcxMesh::Health(UcxGroup* group) {
  const Lock lock = Enter();
  for (int i = 0; i < kLooksMax && group->wire.broken().ok() && Progress(); ++i) {
  }
  if (on_worker_ && disarmed_) Kick();
  return group->wire.broken();
}

void UcxMesh::Abort(UcxGroup* group, const absl::Status& reason) {
  const Lock lock = Enter();
  group->wire.Break(reason);
  SendControls(group);
  Changed(group);
}

absl::Status UcxMesh::Wait(UcxGroup* group, CommDeadline deadline) {
  Lock lock = Enter();
  ++calls_;
  bool stuck = false;
  for (int idle = 0; !Settled(group, deadline);) {
    if (Progress()) {
      idle = 0;
      stuck = false;
      if (entering_.load(std::memory_order_relaxed) > 0) Breathe(&lock);
    } else if (++idle < kSpins) {
      Breathe(&lock);
    } else {
      stuck = !Sleep(group, deadline, stuck, &lock);
      idle = stuck ? kSpins - 1 : 0;
    }
  }
  --calls_;
  const absl::Status status = group->wire.broken();
  if (!status.ok()) {
    peers_.Disown(group);
    group->wire.Withdraw();
  }
  Leave();
  return group->late ? absl::DeadlineExceededError(status.message()) : status;
}

// Whether the call of `group` is over: done, or broken.
bool UcxMesh::Settled(UcxGroup* group, CommDeadline deadline) {
  Pump(group);
  if (group->wire.Idle() || !group->wire.broken().ok()) return true;
  absl::Status status = Lacking(*group);
  if (status.ok() && Clock::now() >= deadline) {
    group->late = true;
    status =
        absl::UnavailableError(absl::StrCat("rank ", group->wire.rank(), "'s deadline passed"));
  }
  if (status.ok()) return false;
  group->wire.Break(status);
  SendControls(group);
  return true;
}

absl::Status UcxMesh::Lacking(const UcxGroup& group) const {
  std::vector<bool> dead;
  for (const UcxPeer* peer : group.peers) dead.push_back(peer != nullptr && peer->dead);
  return group.wire.Lacking(dead);
}

void UcxMesh::Pump(UcxGroup* group) {
  SendControls(group);
  const int size = group->wire.size(), rank = group->wire.rank();
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size;
    UcxPeer* const peer = group->peers[to];
    for (int row = 0; row < kFragmentsInARow && !peer->dead; ++row) {
      if (peer->operations.size() >= kUnderWayMax) break;
      const auto fragment = group->wire.Next(to);
      if (!fragment.has_value()) break;
      UcxOperation operation{.header = fragment->header, .data = fragment->data};
      operation.group = group;
      operation.message = fragment->message;
      operation.to = to;
      if (peers_.Send(peer, std::move(operation))) group->wire.Sent(fragment->message, to);
    }
  }
}

void UcxMesh::SendControls(UcxGroup* group) {
  auto& controls = group->wire.controls();
  if (controls.empty()) return;
  for (auto& control : controls) {
    UcxOperation operation{.header = control.header};
    const auto text = std::as_bytes(std::span(control.text));
    operation.owned.assign(text.begin(), text.end());
    peers_.Send(group->peers[control.to], std::move(operation));
  }
  controls.clear();
  if (calls_ == 0 && peers_.under_way() > 0) WakeLeftovers();
}

bool UcxMesh::Progress() {
  kept_ = false;
  int moved = MoveMessages();
  moved += plane_->Progress(this, kProgressInARow - std::min(moved, kProgressInARow));
  disarmed_ = true;
  for (UcxGroup* group : std::exchange(to_send_controls_, {})) SendControls(group);
  return moved > 0;
}

int UcxMesh::MoveMessages() {
  const auto receive = [this](std::span<const std::byte> message) { OnMessage(message); };
  int moved = peers_.SendWaiting();
  if (host_ != nullptr) moved += host_->Read(kProgressInARow, receive);
  if (tcp_ != nullptr && tcp_->Progress(receive)) ++moved;
  return moved;
}

void UcxMesh::OnMessage(std::span<const std::byte> message) {
  WireHeader header;
  if (message.size() < sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  Arrived(header, message.subspan(sizeof header));
}

void UcxMesh::Arrived(const WireHeader& header, std::span<const std::byte> data) {
  const auto found = groups_.find(header.group);
  if (found == groups_.end()) {
    if (!early_.Closed(header.group)) early_.Keep(header, data);
    return;
  }
  UcxGroup* const group = found->second.get();
  group->wire.Arrived(header, data);
  if (!group->wire.controls().empty()) to_send_controls_.push_back(group);
  Changed(group);
}

void UcxMesh::WasSent(const UcxOperation& operation) {
  if (operation.group == nullptr) return;
  operation.group->wire.Sent(operation.message, operation.to);
  Changed(operation.group);
}

void UcxMesh::OnDeath() {
  for (auto& [key, group] : groups_) Changed(group.get());
}

// Wakes the call of `group`, if one sleeps.
void UcxMesh::Changed(UcxGroup* group) {
  ++group->changes;
  if (on_worker_ && on_worker_group_ == group) {
    Kick();
  } else {
    group->changed.notify_one();
  }
}

void UcxMesh::Kick() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(kick_fd_, &one, sizeof one);
}

// False when it did not sleep on the wire, for there is something to do. If it was so before, and
// nothing moved since (`stuck`), then what is to be done is not for this process to do.
bool UcxMesh::Sleep(UcxGroup* group, CommDeadline deadline, bool stuck, Lock* lock) {
  if (peers_.LoseEnded()) return true;
  if (!on_worker_) {
    if (SleepOnWorker(group, deadline, lock)) return true;
    if (stuck) group->changed.wait_until(*lock, std::min(deadline, Clock::now() + kStandBack));
    return false;
  }
  if (disarmed_) Kick();
  sleepers_.push_back(group);
  const uint64_t seen = group->changes;
  group->changed.wait_until(*lock, std::min(deadline, Clock::now() + kSleepMax),
                            [&] { return group->changes != seen || !on_worker_; });
  std::erase(sleepers_, group);
  return true;
}

// False, without having slept: there is something to do.
bool UcxMesh::SleepOnWorker(UcxGroup* group, CommDeadline deadline, Lock* lock) {
  if (!Arm()) return false;
  on_worker_ = true;
  on_worker_group_ = group;
  disarmed_ = false;
  lock->unlock();
  pollfd fds[] = {{plane_->fd(), POLLIN, 0},
                  {rung_fd_, POLLIN, 0},
                  {kick_fd_, POLLIN, 0},
                  {peers_.ended_fd(), POLLIN, 0},
                  {host_ == nullptr ? -1 : host_->fd(), POLLIN, 0},
                  {tcp_ == nullptr ? -1 : tcp_->fd(), POLLIN, 0}};
  poll(fds, std::size(fds), MillisUntil(deadline));
  *lock = Enter();
  if (host_ != nullptr) host_->Wake();
  plane_->Awake(this);
  uint64_t kicks = 0;
  [[maybe_unused]] const ssize_t drained = read(kick_fd_, &kicks, sizeof kicks);
  on_worker_ = false;
  on_worker_group_ = nullptr;
  return true;
}

// False: there is something to do.
bool UcxMesh::Arm() {
  const bool quiet = (host_ == nullptr || host_->Sleep()) && peers_.AwaitRoom();
  if (quiet && plane_->Arm(this)) return true;
  if (host_ != nullptr) host_->Wake();
  return false;
}

// The end of a call: a call that sleeps must still be woken by messages that come later.
void UcxMesh::Leave() {
  if (on_worker_) {
    if (disarmed_) Kick();
  } else if (!sleepers_.empty()) {
    sleepers_.front()->changed.notify_one();
  }
  if (calls_ == 0 && (peers_.under_way() > 0 || kept_)) WakeLeftovers();
}

// Without a call here nobody would take it, and the plane's other user would be stopped in the end.
void UcxMesh::OnKept() {
  kept_ = true;
  WakeLeftovers();
}

void UcxMesh::WakeLeftovers() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(leftovers_fd_, &one, sizeof one);
}

// A descriptor, not a condition variable: OnKept comes without the lock.
void UcxMesh::RestLeftovers(int millis_max, Lock* lock) {
  lock->unlock();
  pollfd fd = {leftovers_fd_, POLLIN, 0};
  poll(&fd, 1, millis_max);
  uint64_t woken = 0;
  [[maybe_unused]] const ssize_t drained = read(leftovers_fd_, &woken, sizeof woken);
  *lock = Enter();
}

// The fabric's own thread: what no call does.
void UcxMesh::SendLeftovers() {
  Lock lock = Enter();
  while (!stopping_) {
    if (calls_ > 0 || (peers_.under_way() == 0 && !kept_)) {
      RestLeftovers(-1, &lock);
    } else if (Progress()) {
      if (entering_.load(std::memory_order_relaxed) > 0) RestLeftovers(kStandBack.count(), &lock);
    } else if (peers_.LoseEnded()) {
      continue;
    } else if (on_worker_) {
      RestLeftovers(MillisUntil(CommDeadline::max()), &lock);
    } else if (SleepOnWorker(nullptr, Clock::now() + kSleepMax, &lock)) {
      if (!sleepers_.empty()) sleepers_.front()->changed.notify_one();
    } else {
      RestLeftovers(kStandBack.count(), &lock);
    }
  }
}

}  // namespace skein::engine
