#include "services/store/embedded_watch.h"

#include <chrono>
#include <utility>
#include <vector>

#include "services/store/embedded_tables.h"

namespace skein::services {
namespace {

constexpr int64_t kBusyTimeoutUs = 100'000;
constexpr int64_t kCheckpointEveryUs = 10'000'000;

}  // namespace

EmbeddedWatch::EmbeddedWatch(std::string path, HostIdentity host,
                             std::function<int64_t()> boot_time_us, int64_t look_every_us,
                             std::string prefix, ClusterStore::Changed changed)
    : path_(std::move(path)),
      host_(std::move(host)),
      boot_time_us_(std::move(boot_time_us)),
      look_every_us_(look_every_us),
      prefix_(std::move(prefix)),
      changed_(std::move(changed)),
      thread_([this] { Run(); }) {}

EmbeddedWatch::~EmbeddedWatch() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void EmbeddedWatch::Run() {
  std::optional<std::vector<StoreEntry>> told;  // nullopt: nothing, or an error
  bool failing = false;
  int64_t checkpoint_us = boot_time_us_() + kCheckpointEveryUs;
  std::unique_lock lock(mu_);
  while (!stopping_) {
    lock.unlock();
    const auto found = Look();
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
    if (boot_time_us_() >= checkpoint_us) {
      Checkpoint();
      checkpoint_us = boot_time_us_() + kCheckpointEveryUs;
    }
    lock.lock();
    stop_.wait_for(lock, std::chrono::microseconds(look_every_us_), [this] { return stopping_; });
  }
}

absl::StatusOr<StoreSnapshot> EmbeddedWatch::Look() {
  // Told, so that what was seen of the other file, with greater revisions perhaps, is forgotten.
  if (file_.has_value() && file_->Moved()) {
    file_.reset();
    return absl::UnavailableError("the store's file was replaced");
  }
  if (!file_.has_value()) {
    auto opened = SqliteFile::Open(path_, kIfDamaged);
    if (!opened.ok()) return opened.status();
    opened->SetBusyTimeout(kBusyTimeoutUs);
    file_.emplace(*std::move(opened));
  }
  return ReadOnce(&*file_, host_, prefix_, /*whole=*/false, boot_time_us_());
}

// Waits for the disk, which the renewals of leases must not. One that fails is tried again later:
// until then the log grows by a page for each write.
void EmbeddedWatch::Checkpoint() {
  if (file_.has_value()) file_->Run("PRAGMA wal_checkpoint(PASSIVE)").IgnoreError();
}

}  // namespace skein::services
