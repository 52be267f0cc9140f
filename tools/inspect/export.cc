#include <algorithm>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/tensors.h"
#include "tools/output_path.h"

namespace capstan {
namespace {

// "deep/weight" → "deep_weight": part of a file's name.
std::string FileNameOf(std::string table) {
  for (char& c : table) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  return table;
}

// One file for one table, else OUT with the table's name before its ending.
absl::Status ExportCsv(const CheckpointReader& reader, const std::vector<const TableSpec*>& tables,
                       const InspectOptions& options, std::vector<std::string>* files) {
  for (const TableSpec* table : tables) {
    std::string path = options.out;
    if (tables.size() > 1) {
      const bool csv = path.ends_with(".csv");
      path = fmt::format("{}.{}.csv", csv ? path.substr(0, path.size() - 4) : path, FileNameOf(table->name()));
    }
    CAPSTAN_RETURN_IF_ERROR(CheckOutputPath(path, {}));
    CAPSTAN_RETURN_IF_ERROR(WriteCsv(reader, *table, options.slots, path));
    files->push_back(path);
  }
  return absl::OkStatus();
}

absl::Status Export(const CheckpointReader& reader, const std::vector<const TableSpec*>& tables,
                    const InspectOptions& options, std::vector<std::string>* files) {
  if (options.format == "csv") return ExportCsv(reader, tables, options, files);
  CAPSTAN_RETURN_IF_ERROR(CheckOutputPath(options.out, {}));
  const std::vector<TensorSource> tensors = TensorsOf(reader, tables, options.slots);
  files->push_back(options.out);
  if (options.format == "npz") return WriteNpz(tensors, options.out);
  const CheckpointManifest& m = reader.manifest();
  return WriteSafetensors(tensors,
                          {{"job", m.job().config().name()},
                           {"step", fmt::format("{}", m.version())},
                           {"examples", fmt::format("{}", m.examples())},
                           {"model_sha256", m.model_sha256()}},
                          options.out);
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
  if (!written.ok()) return InspectFailure("export", written);
  std::string text;
  for (const std::string& file : files) text += file + " written\n";
  return Say("export", text);
}

}  // namespace capstan
