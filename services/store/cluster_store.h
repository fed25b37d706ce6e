// ClusterStore: a few small values that outlive an orchestrator and that all orchestrators of a
// cell see alike. Implementations: EmbeddedStore (SQLite, the processes of one host) and EtcdStore
// (etcd 3.4 and later). store_conformance.h is the contract as tests; both pass it.
//
// Revisions. Each commit gets the next number of one counter of the whole store, and an entry has
// the number of the commit that wrote it. A revision names a commit for ever, so "the entry with
// revision r" is never another one.
//
// Leases. A lease ends at its time to live after its grant or its last renewal, measured by the
// store, or when it is revoked. All entries that were put with it are deleted with it, as by one
// commit. The time is measured from when the store handled the call. So a caller that counts from
// before it sent the call always believes the lease to end earlier than the store does.
//
// Threads and time. Every method may be called by any thread. All but Watch block, for at most
// about `timeout_us`. No method may be called from a watch's callback.
//
// Errors. Messages name the store: the file's path, or the endpoints.
//   UNAVAILABLE          no answer: not reachable, disk full, file damaged, locked for too long
//   DEADLINE_EXCEEDED    no answer in time
//   Both may be told of a call that the store has carried out all the same.
//   ABORTED              Commit: a comparison failed, and nothing was written
//   NOT_FOUND            Get: no entry has this key. Renew, Revoke, Commit: the lease has ended
//   INVALID_ARGUMENT     an empty key, the same key written twice, a time to live of 0 or less
//   FAILED_PRECONDITION  this process may not use this store (another host's, or a newer format)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::services {

struct StoreEntry {
  std::string key;
  std::string value;
  int64_t revision = 0;  // of the commit that wrote it
  uint64_t lease = 0;    // it ends with this lease; 0: it stays until it is deleted

  friend bool operator==(const StoreEntry&, const StoreEntry&) = default;
};

// What was true at one revision of the store.
struct StoreSnapshot {
  int64_t revision = 0;             // of the latest commit to the store by then, whatever it wrote
  std::vector<StoreEntry> entries;  // ascending by key
};

// Writes all, or nothing if a comparison fails.
struct StoreCommit {
  struct Expected {
    std::string key;
    int64_t revision = 0;  // 0: there is no such entry
  };
  struct Put {
    std::string key;
    std::string value;
    uint64_t lease = 0;
  };
  std::vector<Expected> expected;
  std::vector<Put> puts;
  std::vector<std::string> deletes;  // a key without an entry is no error
};

struct StoreLease {
  uint64_t id = 0;     // not 0
  int64_t ttl_us = 0;  // may be more than was asked for, never less
};

// Ends when it is destroyed, which waits for a callback that runs. Not from the callback.
class StoreWatch {
 public:
  virtual ~StoreWatch() = default;
};

class ClusterStore {
 public:
  // Called with all entries below the prefix: once soon after Watch, and after each change. Changes
  // that follow each other closely may be told as one, so nothing but the latest state is promised.
  // An error: the store cannot be read now. It is told once; the next call follows when the store
  // is back. Calls come one at a time, on a thread of the store, with revisions that never shrink.
  using Changed = std::function<void(const absl::StatusOr<StoreSnapshot>&)>;

  virtual ~ClusterStore() = default;

  virtual absl::StatusOr<StoreEntry> Get(const std::string& key, int64_t timeout_us) = 0;
  // All entries whose keys begin with `prefix`.
  virtual absl::StatusOr<StoreSnapshot> List(const std::string& prefix, int64_t timeout_us) = 0;
  // The commit's revision. It survives the loss of every process, and of power.
  virtual absl::StatusOr<int64_t> Commit(const StoreCommit& commit, int64_t timeout_us) = 0;
  // The watch must be destroyed before the store.
  virtual std::unique_ptr<StoreWatch> Watch(const std::string& prefix, Changed changed) = 0;

  virtual absl::StatusOr<StoreLease> GrantLease(int64_t ttl_us, int64_t timeout_us) = 0;
  // The time to live, which begins anew.
  virtual absl::StatusOr<int64_t> RenewLease(uint64_t lease, int64_t timeout_us) = 0;
  virtual absl::Status RevokeLease(uint64_t lease, int64_t timeout_us) = 0;
};

// One entry, by compare and swap: `revision` is that of the entry to replace; 0: there is none.
inline absl::StatusOr<int64_t> PutIf(ClusterStore* store, const std::string& key, int64_t revision,
                                     const std::string& value, uint64_t lease, int64_t timeout_us) {
  return store->Commit({.expected = {{key, revision}}, .puts = {{key, value, lease}}}, timeout_us);
}
inline absl::StatusOr<int64_t> DeleteIf(ClusterStore* store, const std::string& key,
                                        int64_t revision, int64_t timeout_us) {
  return store->Commit({.expected = {{key, revision}}, .deletes = {key}}, timeout_us);
}

}  // namespace skein::services
