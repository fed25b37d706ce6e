// SqliteFile: a connection to a SQLite file, with errors as Status that name the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace skein::services {

// One thread at a time, like its statements.
class SqliteFile {
 public:
  // Opens the file, creates it if need be. `if_damaged`: what an operator is to do when the file
  // turns out to be damaged, for the error's text.
  static absl::StatusOr<SqliteFile> Open(const std::string& path, std::string if_damaged = "");
  ~SqliteFile();
  SqliteFile(SqliteFile&& other) noexcept;
  SqliteFile& operator=(SqliteFile&& other) noexcept;

  // How long a statement waits for another connection's transaction to end.
  void SetBusyTimeout(int64_t timeout_us);
  // One or several statements without results.
  absl::Status Run(const char* sql);
  // The number of rows that the last statement changed.
  int64_t Changes() const;

  // Whether the last call failed because another connection held the file.
  bool Busy() const;
  // Whether it failed because the disk is full.
  bool Full() const;
  // Whether it failed because the file is damaged, or none of SQLite's.
  bool Damaged() const;
  // Whether the file at `path()` is another one by now, or none: this connection's was removed,
  // renamed or replaced. False for a file that was moved from.
  bool Moved() const;

  // The error of the last call. UNAVAILABLE for what the disk or other processes cause: locked,
  // full, damaged, no permission.
  absl::Status Error(int code) const;

  const std::string& path() const { return path_; }
  sqlite3* get() const { return file_; }

 private:
  SqliteFile(std::string path, std::string if_damaged, sqlite3* file);

  std::string path_;
  std::string if_damaged_;
  sqlite3* file_;  // nullptr: moved from
};

// A statement and its arguments. REQUIRES: the file outlives it. Errors are kept: after the first
// one nothing happens any more, and every later Step or Run returns it.
class SqliteStatement {
 public:
  SqliteStatement(SqliteFile* file, std::string_view sql);
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  // The next argument ('?'). Text is copied.
  SqliteStatement& Bind(int64_t number);
  SqliteStatement& Bind(std::string_view bytes);

  // Whether there is a further row.
  absl::StatusOr<bool> Step();
  // For a statement without rows.
  absl::Status Run();

  // Of the row, by column from 0.
  int64_t Number(int column) const;
  std::string Bytes(int column) const;

 private:
  void Keep(int code);

  SqliteFile* const file_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  absl::Status status_;
};

}  // namespace skein::services
