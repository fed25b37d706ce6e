// EmbeddedStore: a ClusterStore in a SQLite file of a folder, for the processes of ONE host.
//
// Leases end by the host's boot time, which nobody can set, so a jump of the wall clock changes
// nothing. But its readings mean something on one host, and until it starts again. So the file
// names the host: after a restart of the machine all leases have ended; another machine is refused
// (FAILED_PRECONDITION), and so is a folder on a network file system. (A container has its host's
// boot id and boot time; containers of one host may share the folder.)
//
// What it survives. A commit is on the disk before it is acknowledged. Grants and renewals of
// leases are not waited for: a loss of power ends leases anyway, and so a slow disk costs no
// leadership. A process that dies within a transaction leaves nothing of it. What it does not
// survive. A process that is stopped (SIGSTOP) within a write, which takes some 0.1 ms, blocks all
// others until it goes on or is killed.
//
// Files that are taken away. A process would go on with a file that nobody else can find, while
// another one creates the next: two stores, and a leader in each. So every call looks whether the
// file is still the one at its path. If not, it opens or creates that one, in which no lease of
// before exists.
//
// A full disk. The write-ahead log cannot grow then, and is written into the file so that its space
// can be used again. Renewals go on so.
//
// The file has the tables `about` (format, revision, host), `entries` and `leases`. Its write-ahead
// log and shared memory are beside it (store.sqlite-wal, store.sqlite-shm).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/store/cluster_store.h"
#include "services/store/host_identity.h"
#include "services/store/sqlite.h"

namespace skein::services {

class EmbeddedStore final : public ClusterStore {
 public:
  struct Options {
    std::string folder;  // created if need be; the file in it is store.sqlite
    // How often a watch looks whether something has changed.
    int64_t look_every_us = 20'000;
    // For tests; empty: the host's.
    std::function<int64_t()> boot_time_us;
    HostIdentity host;
  };

  static absl::StatusOr<std::unique_ptr<EmbeddedStore>> Open(Options options);
  ~EmbeddedStore() override;

  absl::StatusOr<StoreEntry> Get(const std::string& key, int64_t timeout_us) override;
  absl::StatusOr<StoreSnapshot> List(const std::string& prefix, int64_t timeout_us) override;
  absl::StatusOr<int64_t> Commit(const StoreCommit& commit, int64_t timeout_us) override;
  std::unique_ptr<StoreWatch> Watch(const std::string& prefix, Changed changed) override;
  absl::StatusOr<StoreLease> GrantLease(int64_t ttl_us, int64_t timeout_us) override;
  absl::StatusOr<int64_t> RenewLease(uint64_t lease, int64_t timeout_us) override;
  absl::Status RevokeLease(uint64_t lease, int64_t timeout_us) override;

 private:
  EmbeddedStore(Options options, SqliteFile file);

  enum class Disk { kWait, kGoOn };  // whether the end of a transaction waits for the disk
  class Turn;                        // of a thread, with the file
  using Body = std::function<absl::Status(int64_t now_us)>;
  absl::StatusOr<StoreSnapshot> Read(const std::string& key, bool whole, int64_t timeout_us);
  // Runs `body` in a write transaction, after what has ended was deleted. `now_us` was read within
  // the transaction. Undone if `body` fails.
  absl::Status Write(int64_t timeout_us, Disk disk, const Body& body);
  // REQUIRES: this thread's turn. `full`: set if the disk has no room for it.
  absl::Status WriteOnce(Disk disk, const Body& body, bool* full);
  absl::Status FollowPath();  // REQUIRES: this thread's turn
  absl::Status InTransaction(const Body& body);

  const Options options_;
  std::mutex mu_;
  std::condition_variable free_;
  bool taken_ = false;  // a thread uses the file
  SqliteFile file_;     // of the thread that has taken it
};

}  // namespace skein::services
