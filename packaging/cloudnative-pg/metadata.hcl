# What CloudNativePG's catalogue of extensions wants to know of pg_herald.
metadata = {
  name                     = "pg-herald"
  sql_name                 = "pg_herald"
  image_name               = "pg-herald"
  licenses                 = ["PostgreSQL"]
  shared_preload_libraries = ["pg_herald"]
  postgresql_parameters    = {}
  extension_control_path   = []
  dynamic_library_path     = []
  ld_library_path          = []
  bin_path                 = []
  env                      = {}
  auto_update_os_libs      = false
  required_extensions      = []
  create_extension         = true

  versions = {
    bookworm = {
      "18" = {
        package = "1.0-1"
        sql     = "1.0"
      }
    }
    trixie = {
      "18" = {
        package = "1.0-1"
        sql     = "1.0"
      }
    }
  }
}
