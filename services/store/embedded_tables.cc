#include "services/store/embedded_tables.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random_bits.h"

namespace skein::services {
namespace {

constexpr int64_t kFormat = 1;

constexpr char kTables[] = R"(
CREATE TABLE IF NOT EXISTS about (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  format INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  boot BLOB NOT NULL,
  machine BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
  key BLOB PRIMARY KEY,
  value BLOB NOT NULL,
  revision INTEGER NOT NULL,
  lease INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  ttl_us INTEGER NOT NULL,
  ends_us INTEGER NOT NULL);
)";

absl::Status OfAnotherHost(const SqliteFile& file) {
  return absl::FailedPreconditionError(
      absl::StrCat("the store ", file.path(),
                   " belongs to another host: the embedded store is for the processes ",
                   "of one host only. Use etcd for several hosts. If the other host is gone for "
                   "good, remove the ",
                   "file; generations are learnt again from workers and routers"));
}

// The file was another boot's. All leases have ended if it was this machine's.
absl::Status TakeOver(SqliteFile* file, const HostIdentity& host, const std::string& machine,
                      int64_t revision) {
  if (machine != host.machine) return OfAnotherHost(*file);
  if (absl::Status s = file->Run("DELETE FROM entries WHERE lease != 0; DELETE FROM leases");
      !s.ok()) {
    return s;
  }
  return SqliteStatement(file, "UPDATE about SET boot = ?, revision = ?")
      .Bind(host.boot)
      .Bind(revision + 1)
      .Run();
}

// A new file may follow one that was lost. A process that knows revisions and leases of that one
// must not meet the same numbers here.
absl::Status Begin(SqliteFile* file, const HostIdentity& host) {
  const auto first = [] { return static_cast<int64_t>(RandomBits() >> 33 << 20) + 1; };
  if (absl::Status s = SqliteStatement(file, "INSERT INTO sqlite_sequence VALUES ('leases', ?)")
                           .Bind(first())
                           .Run();
      !s.ok()) {
    return s;
  }
  return SqliteStatement(file, "INSERT INTO about VALUES (1, ?, ?, ?, ?)")
      .Bind(kFormat)
      .Bind(first())
      .Bind(host.boot)
      .Bind(host.machine)
      .Run();
}

absl::Status SetUpInTransaction(SqliteFile* file, const HostIdentity& host) {
  if (absl::Status s = file->Run(kTables); !s.ok()) return s;
  SqliteStatement about(file, "SELECT format, revision, boot, machine FROM about");
  const auto found = about.Step();
  if (!found.ok()) return found.status();
  if (!*found) return Begin(file, host);
  if (about.Number(0) != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store ", file->path(), " has format ", about.Number(0),
                     ", and this version knows format ", kFormat, " only"));
  }
  if (about.Bytes(2) == host.boot) return absl::OkStatus();
  return TakeOver(file, host, about.Bytes(3), about.Number(1));
}

// The mode stays with the file. Readers and a writer do not wait for each other in it.
absl::Status UseWriteAheadLog(SqliteFile* file) {
  SqliteStatement mode(file, "PRAGMA journal_mode = WAL");
  const auto found = mode.Step();
  if (!found.ok()) return found.status();
  if (*found && mode.Bytes(0) == "wal") return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the store ", file->path(), " is on a file system without shared memory, which it needs"));
}

}  // namespace

absl::Status SetUpTables(SqliteFile* file, const HostIdentity& host) {
  if (absl::Status s = UseWriteAheadLog(file); !s.ok()) return s;
  if (absl::Status s = file->Run("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Status status = SetUpInTransaction(file, host);
  if (status.ok()) status = file->Run("COMMIT");
  if (!status.ok()) file->Run("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<int64_t> ReadRevision(SqliteFile* file, const HostIdentity& host) {
  SqliteStatement about(file, "SELECT revision, boot FROM about");
  const auto found = about.Step();
  if (!found.ok()) return found.status();
  if (!*found || about.Bytes(1) != host.boot) return OfAnotherHost(*file);
  return about.Number(0);
}

absl::StatusOr<int64_t> NextRevision(SqliteFile* file, const HostIdentity& host) {
  const auto revision = ReadRevision(file, host);
  if (!revision.ok()) return revision.status();
  const int64_t next = *revision + 1;
  absl::Status status = SqliteStatement(file, "UPDATE about SET revision = ?").Bind(next).Run();
  if (!status.ok()) return status;
  return next;
}

absl::StatusOr<StoreSnapshot> ReadEntries(SqliteFile* file, const HostIdentity& host,
                                          const std::string& prefix, bool whole, int64_t now_us) {
  const auto revision = ReadRevision(file, host);
  if (!revision.ok()) return revision.status();
  StoreSnapshot snapshot;
  snapshot.revision = *revision;
  SqliteStatement rows(file, absl::StrCat("SELECT key, value, revision, lease FROM entries WHERE ",
                                          whole ? "key = ?" : "key >= ? AND substr(key, 1, ?) = ?",
                                          " AND (lease = 0 OR EXISTS (SELECT 1 FROM leases WHERE "
                                          "id = lease AND ends_us > ?)) ORDER BY key"));
  rows.Bind(prefix);
  if (!whole) rows.Bind(static_cast<int64_t>(prefix.size())).Bind(prefix);
  rows.Bind(now_us);
  for (;;) {
    const auto found = rows.Step();
    if (!found.ok()) return found.status();
    if (!*found) return snapshot;
    snapshot.entries.push_back(
        {rows.Bytes(0), rows.Bytes(1), rows.Number(2), static_cast<uint64_t>(rows.Number(3))});
  }
}

absl::StatusOr<StoreSnapshot> ReadOnce(SqliteFile* file, const HostIdentity& host,
                                       const std::string& prefix, bool whole, int64_t now_us) {
  if (absl::Status s = file->Run("BEGIN"); !s.ok()) return s;
  auto snapshot = ReadEntries(file, host, prefix, whole, now_us);
  file->Run("ROLLBACK").IgnoreError();  // it only read
  return snapshot;
}

absl::StatusOr<bool> Expire(SqliteFile* file, int64_t now_us) {
  absl::Status status =
      SqliteStatement(file,
                      "DELETE FROM entries WHERE lease != 0 AND NOT EXISTS (SELECT 1 FROM leases "
                      "WHERE id = lease AND ends_us > ?)")
          .Bind(now_us)
          .Run();
  if (!status.ok()) return status;
  const bool entries = file->Changes() > 0;
  status = SqliteStatement(file, "DELETE FROM leases WHERE ends_us <= ?").Bind(now_us).Run();
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<bool> DropLease(SqliteFile* file, uint64_t lease) {
  const auto id = static_cast<int64_t>(lease);
  absl::Status status = SqliteStatement(file, "DELETE FROM leases WHERE id = ?").Bind(id).Run();
  if (!status.ok()) return status;
  if (file->Changes() == 0) {
    return absl::NotFoundError(
        absl::StrCat("the store ", file->path(), ": lease ", lease, " has ended"));
  }
  status = SqliteStatement(file, "DELETE FROM entries WHERE lease = ?").Bind(id).Run();
  if (!status.ok()) return status;
  return file->Changes() > 0;
}

}  // namespace skein::services
