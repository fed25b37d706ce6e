// EmbeddedWatch: looks at the embedded store's file every few milliseconds, on a thread and a
// connection of its own. A look costs some 0.03 ms, takes no lock that a writer waits for, and also
// finds what no commit tells: that a lease has ended. Every 10 s it makes a checkpoint of the
// file's write-ahead log, which waits for the disk, so that no renewal of a lease has to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "services/store/cluster_store.h"
#include "services/store/host_identity.h"
#include "services/store/sqlite.h"

namespace skein::services {

class EmbeddedWatch final : public StoreWatch {
 public:
  EmbeddedWatch(std::string path, HostIdentity host, std::function<int64_t()> boot_time_us,
                int64_t look_every_us, std::string prefix, ClusterStore::Changed changed);
  ~EmbeddedWatch() override;

 private:
  void Run();
  absl::StatusOr<StoreSnapshot> Look();
  void Checkpoint();  // of the file's write-ahead log

  const std::string path_;
  const HostIdentity host_;
  const std::function<int64_t()> boot_time_us_;
  const int64_t look_every_us_;
  const std::string prefix_;
  const ClusterStore::Changed changed_;
  std::optional<SqliteFile> file_;  // the thread's; opened at the first look that succeeds
  std::mutex mu_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skein::services
