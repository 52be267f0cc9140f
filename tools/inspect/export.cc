#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/tensors.h"
#include "tools/output_path.h"

namespace capstan {
namespace {

struct CsvFile {
  const TableSpec* table;
  std::string path;
};

// One file for one table, else OUT with the table's name before its ending: x.csv → x.deep_0_bias.csv.
absl::StatusOr<std::vector<CsvFile>> CsvFilesOf(const std::vector<const TableSpec*>& tables,
                                                const std::string& out) {
  std::vector<CsvFile> files;
  std::map<std::string, std::string> names;
  for (const TableSpec* table : tables) {
    std::string path = out;
    if (tables.size() > 1) {
      std::string name = PlainName(table->name());
      std::replace(name.begin(), name.end(), '/', '_');
      path = fmt::format("{}.{}.csv", out.ends_with(".csv") ? out.substr(0, out.size() - 4) : out, name);
    }
    if (const auto [at, is_new] = names.emplace(path, table->name()); !is_new) {
      return InvalidArgument(
          fmt::format("tables {} and {} would both be written to '{}'; choose one with --table", at->second,
                      table->name(), path));
    }
    files.push_back({table, path});
  }
  return files;
}

absl::Status CheckNames(const std::vector<TensorSource>& tensors, const std::string& format) {
  std::set<std::string> names;
  for (const TensorSource& tensor : tensors) {
    if (format == "safetensors" && tensor.name == kSafetensorsMetadata) {
      return InvalidArgument(fmt::format(
          "safetensors keeps the name '{}' for itself; leave that table out with --table, or take --format=npz",
          tensor.name));
    }
    if (names.insert(tensor.name).second) continue;
    return InvalidArgument(
        fmt::format("two tables would be the array '{}'; choose one with --table", tensor.name));
  }
  return absl::OkStatus();
}

absl::Status CheckExportPlace(const std::string& out, const CheckpointReader& reader) {
  CAPSTAN_RETURN_IF_ERROR(CheckOutputPath(out, {}));
  return CheckOutsideCheckpoint(out, reader);
}

// Rows as they are read: stdout has no end that could fail to appear.
class StdoutFile : public WritableFile {
 public:
  absl::Status Append(const void* data, size_t size) override {
    return std::fwrite(data, 1, size, stdout) == size ? absl::OkStatus() : Unavailable("stdout cannot be written");
  }
  absl::Status Sync() override {
    return std::fflush(stdout) == 0 ? absl::OkStatus() : Unavailable("stdout cannot be written");
  }
  absl::Status Close() override { return Sync(); }
};

absl::Status ExportToStdout(const CheckpointReader& reader, const std::vector<const TableSpec*>& tables,
                            const InspectOptions& options) {
  if (options.format != "csv") {
    return InvalidArgument(fmt::format("--out=-: only --format=csv goes to stdout; {} wants the name of a file",
                                       options.format));
  }
  if (tables.size() > 1) {
    return InvalidArgument(fmt::format("--out=-: {} tables would follow one another; choose one with --table, of {}",
                                       tables.size(), TableNames(reader)));
  }
  StdoutFile out;
  CAPSTAN_RETURN_IF_ERROR(WhileReading(reader, AppendCsv(reader, *tables[0], options.slots, out)));
  return out.Sync();
}

// files: those that are there, also after an error.
absl::Status ExportCsv(const CheckpointReader& reader, const std::vector<const TableSpec*>& tables,
                       const InspectOptions& options, std::vector<std::string>* files) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CsvFile> wanted, CsvFilesOf(tables, options.out));
  for (const CsvFile& file : wanted) CAPSTAN_RETURN_IF_ERROR(CheckExportPlace(file.path, reader));
  for (const CsvFile& file : wanted) {
    CAPSTAN_RETURN_IF_ERROR(WhileReading(reader, WriteCsv(reader, *file.table, options.slots, file.path)));
    files->push_back(file.path);
  }
  return absl::OkStatus();
}

absl::Status Export(const CheckpointReader& reader, const std::vector<const TableSpec*>& tables,
                    const InspectOptions& options, std::vector<std::string>* files) {
  if (options.out == "-") return ExportToStdout(reader, tables, options);
  if (options.format == "csv") return ExportCsv(reader, tables, options, files);
  CAPSTAN_RETURN_IF_ERROR(CheckExportPlace(options.out, reader));
  const std::vector<TensorSource> tensors = TensorsOf(reader, tables, options.slots);
  CAPSTAN_RETURN_IF_ERROR(CheckNames(tensors, options.format));
  const CheckpointManifest& m = reader.manifest();
  const absl::Status written = options.format == "npz"
                                   ? WriteNpz(tensors, options.out)
                                   : WriteSafetensors(tensors,
                                                      {{"job", m.job().config().name()},
                                                       {"step", fmt::format("{}", m.version())},
                                                       {"examples", fmt::format("{}", m.examples())},
                                                       {"model_sha256", m.model_sha256()}},
                                                      options.out);
  CAPSTAN_RETURN_IF_ERROR(WhileReading(reader, written));
  files->push_back(options.out);
  return absl::OkStatus();
}

}  // namespace

int InspectExport(const InspectOptions& options) {
  if (options.format != "npz" && options.format != "safetensors" && options.format != "csv") {
    return InspectUsage("export", fmt::format("--format={}: wanted npz, safetensors or csv", options.format));
  }
  if (options.out.empty()) return InspectUsage("export", "--out=FILE is missing");
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("export", reader.status());
  const auto tables = ChooseTables(**reader, options.table);
  if (!tables.ok()) return InspectFailure("export", tables.status());
  std::vector<std::string> files;
  const absl::Status written = Export(**reader, *tables, options, &files);
  std::string text;
  for (const std::string& file : files) text += file + " written\n";
  const int said = Say("export", text);
  return written.ok() ? said : InspectFailure("export", written);
}

}  // namespace capstan
