#include "services/store/etcd_watch.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "services/store/etcd_range.h"
#include "third_party/interfaces/etcd/rpc.grpc.pb.h"

namespace skein::services {
namespace {

constexpr auto kReadEvery = std::chrono::milliseconds(500);
constexpr int64_t kReadTimeoutUs = 1'000'000;
constexpr auto kListenAgain = std::chrono::milliseconds(200);

}  // namespace

EtcdWatch::EtcdWatch(EtcdCalls* calls, std::string prefix, ClusterStore::Changed changed)
    : calls_(calls),
      prefix_(std::move(prefix)),
      changed_(std::move(changed)),
      listener_([this] { Listen(); }),
      reader_([this] { Read(); }) {}

EtcdWatch::~EtcdWatch() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->TryCancel();
  }
  wake_.notify_all();
  listener_.join();
  reader_.join();
}

void EtcdWatch::Notify() {
  {
    std::lock_guard lock(mu_);
    notified_ = true;
  }
  wake_.notify_all();
}

void EtcdWatch::Listen() {
  std::unique_lock lock(mu_);
  while (!stopping_) {
    lock.unlock();
    const size_t endpoint = calls_->Current();
    ListenOnce(endpoint);
    calls_->Failed(endpoint);
    lock.lock();
    wake_.wait_for(lock, kListenAgain, [this] { return stopping_; });
  }
}

// Until the stream ends.
void EtcdWatch::ListenOnce(size_t endpoint) {
  grpc::ClientContext context;
  EtcdCalls::Prepare(&context);
  {
    std::lock_guard lock(mu_);
    if (stopping_) return;
    stream_ = &context;
  }
  const auto stub = etcdserverpb::Watch::NewStub(calls_->Channel(endpoint));
  const auto stream = stub->Watch(&context);
  etcdserverpb::WatchRequest request;
  request.mutable_create_request()->set_key(prefix_.empty() ? std::string(1, '\0') : prefix_);
  request.mutable_create_request()->set_range_end(EtcdRangeEnd(prefix_));
  bool open = stream->Write(request);
  etcdserverpb::WatchResponse response;
  while (open && stream->Read(&response)) {
    Notify();  // also when the watch was created: what happened before is read then
    open = !response.canceled();
  }
  context.TryCancel();
  stream->Finish().ok();  // why it ended does not matter
  std::lock_guard lock(mu_);
  stream_ = nullptr;
}

void EtcdWatch::Read() {
  std::optional<std::vector<StoreEntry>> told;  // nullopt: nothing, or an error
  bool failing = false;
  std::unique_lock lock(mu_);
  while (!stopping_) {
    notified_ = false;
    lock.unlock();
    const auto found = ReadEtcdRange(calls_, prefix_, EtcdRangeEnd(prefix_), kReadTimeoutUs);
    if (found.ok()) {
      failing = false;
      if (told != found->entries) {
        told = found->entries;
        changed_(found);
      }
    } else if (!std::exchange(failing, true)) {
      told.reset();
      changed_(found);
    }
    lock.lock();
    wake_.wait_for(lock, kReadEvery, [this] { return stopping_ || notified_; });
  }
}

}  // namespace skein::services
