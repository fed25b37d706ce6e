#include "services/store/embedded_store.h"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/store/boot_time.h"
#include "services/store/embedded_tables.h"
#include "services/store/embedded_watch.h"
#include "services/store/store_checks.h"

namespace skein::services {
namespace {

constexpr int64_t kOpenTimeoutUs = 5'000'000;
constexpr const char* kCheckpoint = "PRAGMA wal_checkpoint(PASSIVE)";

std::string PathIn(const std::string& folder) { return folder + "/store.sqlite"; }

absl::Status LockedFor(const std::string& path, int64_t timeout_us) {
  return absl::UnavailableError(
      absl::StrCat("the store ", path, " was busy for ", timeout_us / 1000, " ms"));
}

absl::Status Compare(SqliteFile* file, const StoreCommit::Expected& expected) {
  SqliteStatement row(file, "SELECT revision FROM entries WHERE key = ?");
  row.Bind(expected.key);
  const auto found = row.Step();
  if (!found.ok()) return found.status();
  const int64_t revision = *found ? row.Number(0) : 0;
  if (revision == expected.revision) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the store ", file->path(), ": ", expected.key,
                                         " has revision ", revision, ", not ", expected.revision));
}

absl::Status CheckLease(SqliteFile* file, uint64_t lease) {
  SqliteStatement row(file, "SELECT 1 FROM leases WHERE id = ?");
  row.Bind(static_cast<int64_t>(lease));
  const auto found = row.Step();
  if (!found.ok()) return found.status();
  if (*found) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("the store ", file->path(), ": lease ", lease, " has ended"));
}

absl::Status Apply(SqliteFile* file, const StoreCommit& commit, int64_t revision) {
  for (const auto& put : commit.puts) {
    if (put.lease != 0) {
      if (absl::Status live = CheckLease(file, put.lease); !live.ok()) return live;
    }
    absl::Status status =
        SqliteStatement(file, "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)")
            .Bind(put.key)
            .Bind(put.value)
            .Bind(revision)
            .Bind(static_cast<int64_t>(put.lease))
            .Run();
    if (!status.ok()) return status;
  }
  for (const std::string& key : commit.deletes) {
    absl::Status status =
        SqliteStatement(file, "DELETE FROM entries WHERE key = ?").Bind(key).Run();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Two processes that create the file at the same time find it locked without SQLite's own wait.
absl::Status SetUpWhenFree(SqliteFile* file, const HostIdentity& host) {
  file->SetBusyTimeout(kOpenTimeoutUs);
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(kOpenTimeoutUs);
  for (;;) {
    absl::Status status = SetUpTables(file, host);
    if (status.ok() || !absl::IsUnavailable(status) || !file->Busy() ||
        std::chrono::steady_clock::now() > until) {
      return status;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::StatusOr<SqliteFile> OpenFile(const std::string& folder, const HostIdentity& host) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot create the folder ", folder, ": ", error.message()));
  }
  if (absl::Status local = CheckLocalFolder(folder); !local.ok()) return local;
  auto file = SqliteFile::Open(PathIn(folder), kIfDamaged);
  if (!file.ok()) return file.status();
  if (absl::Status status = SetUpWhenFree(&*file, host); !status.ok()) return status;
  // A checkpoint waits for the disk, and so would the renewal of a lease. Watches make them.
  if (absl::Status s = file->Run("PRAGMA wal_autocheckpoint = 0"); !s.ok()) return s;
  // The file has all its pages from now on, so that a full disk keeps nobody from writing the log
  // into it. It fails while another process makes one.
  file->Run(kCheckpoint).IgnoreError();
  return file;
}

}  // namespace

class EmbeddedStore::Turn {
 public:
  Turn(EmbeddedStore* store, int64_t timeout_us) : store_(store) {
    std::unique_lock lock(store_->mu_);
    taken_ = store_->free_.wait_for(lock, std::chrono::microseconds(timeout_us),
                                    [this] { return !store_->taken_; });
    if (taken_) store_->taken_ = true;
  }
  ~Turn() {
    if (!taken_) return;
    {
      std::lock_guard lock(store_->mu_);
      store_->taken_ = false;
    }
    store_->free_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool Taken() const { return taken_; }

 private:
  EmbeddedStore* const store_;
  bool taken_ = false;
};

absl::StatusOr<std::unique_ptr<EmbeddedStore>> EmbeddedStore::Open(Options options) {
  if (options.host.boot.empty()) {
    auto host = ThisHost();
    if (!host.ok()) return host.status();
    options.host = *std::move(host);
  }
  if (!options.boot_time_us) options.boot_time_us = BootTimeUs;
  auto file = OpenFile(options.folder, options.host);
  if (!file.ok()) return file.status();
  return std::unique_ptr<EmbeddedStore>(new EmbeddedStore(std::move(options), *std::move(file)));
}

EmbeddedStore::EmbeddedStore(Options options, SqliteFile file)
    : options_(std::move(options)), file_(std::move(file)) {}
EmbeddedStore::~EmbeddedStore() = default;

absl::StatusOr<StoreEntry> EmbeddedStore::Get(const std::string& key, int64_t timeout_us) {
  auto snapshot = Read(key, /*whole=*/true, timeout_us);
  if (!snapshot.ok()) return snapshot.status();
  if (snapshot->entries.empty()) {
    return absl::NotFoundError(absl::StrCat("the store ", file_.path(), " has no entry ", key));
  }
  return std::move(snapshot->entries.front());
}

absl::StatusOr<StoreSnapshot> EmbeddedStore::List(const std::string& prefix, int64_t timeout_us) {
  return Read(prefix, /*whole=*/false, timeout_us);
}

absl::StatusOr<StoreSnapshot> EmbeddedStore::Read(const std::string& key, bool whole,
                                                  int64_t timeout_us) {
  const Turn turn(this, timeout_us);
  if (!turn.Taken()) return LockedFor(file_.path(), timeout_us);
  if (absl::Status found = FollowPath(); !found.ok()) return found;
  file_.SetBusyTimeout(timeout_us);
  return ReadOnce(&file_, options_.host, key, whole, options_.boot_time_us());
}

absl::StatusOr<int64_t> EmbeddedStore::Commit(const StoreCommit& commit, int64_t timeout_us) {
  if (absl::Status good = CheckCommit(commit); !good.ok()) return good;
  int64_t revision = 0;
  absl::Status status = Write(timeout_us, Disk::kWait, [&](int64_t /*now_us*/) -> absl::Status {
    for (const auto& expected : commit.expected) {
      if (absl::Status same = Compare(&file_, expected); !same.ok()) return same;
    }
    auto next = NextRevision(&file_, options_.host);
    if (!next.ok()) return next.status();
    revision = *next;
    return Apply(&file_, commit, revision);
  });
  if (!status.ok()) return status;
  return revision;
}

std::unique_ptr<StoreWatch> EmbeddedStore::Watch(const std::string& prefix, Changed changed) {
  return std::make_unique<EmbeddedWatch>(file_.path(), options_.host, options_.boot_time_us,
                                         options_.look_every_us, prefix, std::move(changed));
}

absl::StatusOr<StoreLease> EmbeddedStore::GrantLease(int64_t ttl_us, int64_t timeout_us) {
  if (absl::Status good = CheckTtl(ttl_us); !good.ok()) return good;
  StoreLease lease = {0, ttl_us};
  absl::Status status = Write(timeout_us, Disk::kGoOn, [&](int64_t now_us) -> absl::Status {
    SqliteStatement row(&file_, "INSERT INTO leases (ttl_us, ends_us) VALUES (?, ?) RETURNING id");
    row.Bind(ttl_us).Bind(now_us + ttl_us);
    const auto found = row.Step();
    if (!found.ok()) return found.status();
    lease.id = static_cast<uint64_t>(row.Number(0));
    return row.Run();  // to its end
  });
  if (!status.ok()) return status;
  return lease;
}

absl::StatusOr<int64_t> EmbeddedStore::RenewLease(uint64_t lease, int64_t timeout_us) {
  int64_t ttl_us = 0;
  absl::Status status = Write(timeout_us, Disk::kGoOn, [&](int64_t now_us) -> absl::Status {
    if (absl::Status live = CheckLease(&file_, lease); !live.ok()) return live;
    SqliteStatement row(&file_,
                        "UPDATE leases SET ends_us = ttl_us + ? WHERE id = ? RETURNING ttl_us");
    row.Bind(now_us).Bind(static_cast<int64_t>(lease));
    const auto found = row.Step();
    if (!found.ok()) return found.status();
    ttl_us = row.Number(0);
    return row.Run();  // to its end
  });
  if (!status.ok()) return status;
  return ttl_us;
}

absl::Status EmbeddedStore::RevokeLease(uint64_t lease, int64_t timeout_us) {
  return Write(timeout_us, Disk::kGoOn, [&](int64_t /*now_us*/) -> absl::Status {
    const auto entries = DropLease(&file_, lease);
    if (!entries.ok()) return entries.status();
    return *entries ? NextRevision(&file_, options_.host).status() : absl::OkStatus();
  });
}

absl::Status EmbeddedStore::FollowPath() {
  if (!file_.Moved()) return absl::OkStatus();
  auto file = OpenFile(options_.folder, options_.host);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status EmbeddedStore::Write(int64_t timeout_us, Disk disk, const Body& body) {
  const Turn turn(this, timeout_us);
  if (!turn.Taken()) return LockedFor(file_.path(), timeout_us);
  if (absl::Status found = FollowPath(); !found.ok()) return found;
  file_.SetBusyTimeout(timeout_us);
  bool full = false;
  absl::Status status = WriteOnce(disk, body, &full);
  if (full && file_.Run(kCheckpoint).ok()) status = WriteOnce(disk, body, &full);
  return status;
}

absl::Status EmbeddedStore::WriteOnce(Disk disk, const Body& body, bool* full) {
  absl::Status status =
      file_.Run(disk == Disk::kWait ? "PRAGMA synchronous = FULL; BEGIN IMMEDIATE"
                                    : "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = InTransaction(body);
  if (status.ok()) status = file_.Run("COMMIT");
  if (status.ok()) return status;
  *full = file_.Full();
  file_.Run("ROLLBACK").IgnoreError();  // some errors have rolled back already
  return status;
}

absl::Status EmbeddedStore::InTransaction(const Body& body) {
  if (const auto revision = ReadRevision(&file_, options_.host); !revision.ok()) {
    return revision.status();
  }
  const int64_t now_us = options_.boot_time_us();
  const auto expired = Expire(&file_, now_us);
  if (!expired.ok()) return expired.status();
  if (*expired) {
    if (auto next = NextRevision(&file_, options_.host); !next.ok()) return next.status();
  }
  return body(now_us);
}

}  // namespace skein::services
